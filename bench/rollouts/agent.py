"""The agent as Fulgurite runs it: a program, kept in memory by sdk/python/fulgurite_serve.py."""

import json
import os
import random
import urllib.request

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from work import work

if __name__ == "__main__":
    random.seed(os.urandom(8))
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    reward = work(provider.get_tracer("bench"))
    provider.shutdown()  # sends the spans
    body = json.dumps({"value": reward}).encode()
    request = urllib.request.Request(
        os.environ["FULGURITE_REWARD_URL"], body,
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    urllib.request.urlopen(request).close()
    print("done")
