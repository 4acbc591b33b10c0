"""`evenlane plan size`, which contacts nothing."""

import json

WRONG = r"""
plan size
plan size --qps 10
plan size --qps many --handler-ms 1
plan size --qps 0 --handler-ms 1
plan size --qps 10 --handler-ms 1 --handler-cpu-ms 2
plan size --qps 10 --handler-ms 1 --concurrency 0
plan size --qps 10 --handler-ms 1 --message-bytes 1.5
plan size --qps 10 --handler-ms 1 --retention soon
plan size --qps 10 --handler-ms 1 --replicas 7
plan size --qps 10 --handler-ms 1 --build fast
plan size --qps 1000000 --handler-ms 100
"""


def test_size_prints_each_figure_with_its_assumption(transcript):
    transcript("plan", "size", "--qps", "1000", "--handler-ms", "100")
    transcript("plan", "size", "--qps", "20000", "--handler-ms", "5", "--handler-cpu-ms", "1", "--build", "compiled")
    transcript.check()


def test_size_as_json(evenlane):
    code, out, err = evenlane("plan", "size", "--qps", "1000", "--handler-ms", "100", "--json")
    assert (0, "") == (code, err)
    document = json.loads(out)
    assert {"value": 143, "unit": "", "because": "qps x handler time, of which 70% are busy"} == document["slots"]
    assert (4, 3) == (document["nodes"]["value"], document["nodes_for_slots"]["value"])


def test_wrong_use_of_size_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()
