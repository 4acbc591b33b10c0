from tests.support.push.fixtures import receiver
