"""Produces the lines of its input, each a key, a tab and a value: produce.py BOOTSTRAP TOPIC"""

import sys

from confluent_kafka import Producer

bootstrap, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap})
failures = []


def delivered(error, _):
    if error:
        failures.append(str(error))


for line in sys.stdin:
    key, value = line.rstrip("\n").split("\t", 1)
    producer.produce(topic, value, key, on_delivery=delivered)
left = producer.flush(20)
if left or failures:
    sys.exit(f"{left} records are not acknowledged: {failures[:3]}")
