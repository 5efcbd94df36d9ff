"""What the agent of both sides does in a rollout, and how many rollouts it is measured with."""

import random
import string
import time

ROUNDS = 4
SECONDS = 0.02  # the longest that one piece of work takes


def attributes() -> dict[str, str]:
    """Attributes of a span: a few, some of them long."""
    return {f"work.{i}": "".join(random.choices(string.ascii_letters, k=random.randint(5, 300))) for i in range(random.randint(4, 20))}


def work(tracer) -> float:
    """One to four rounds of two pieces of work each, and a last one, each with a span. It returns the reward."""
    for i in range(random.randint(1, ROUNDS)):
        with tracer.start_as_current_span(f"round {i}"):
            for part in range(2):
                piece(tracer, f"round {i}, part {part}")
    piece(tracer, "last")
    return random.random()


def piece(tracer, name: str) -> None:
    with tracer.start_as_current_span(name) as span:
        time.sleep(random.uniform(0, SECONDS))
        span.set_attributes(attributes())
