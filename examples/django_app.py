"""A Django view that puts a message.

    pip install django
    evenlane topics set orders-eu --qps 50
    python examples/django_app.py runserver --noreload 8000

`SyncProducer` connects with its first put. So it may be a global: a worker that gunicorn or uWSGI forks from a loaded
application gets a connection of its own.
"""

import json
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

from evenlane import BacklogFull, SyncProducer, UnknownProject

settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="only for this example", ALLOWED_HOSTS=["127.0.0.1"])  # noqa: S106
producer = SyncProducer()


@require_POST
def order(request: HttpRequest, region: str) -> JsonResponse:
    given = json.loads(request.body)
    try:
        receipt = producer.put(f"orders-{region}", given, id=f"order-{given['number']}")
    except UnknownProject as error:
        return JsonResponse({"error": str(error)}, status=404)
    except BacklogFull as error:
        return JsonResponse({"error": str(error)}, status=429)
    return JsonResponse({"number": given["number"], "sequence": receipt.sequence}, status=202)


urlpatterns = [path("orders/<slug:region>", order)]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
