"""Prints everything that is in a topic, a JSON object a line, bytes as hex: read.py BOOTSTRAP TOPIC"""

import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition



def text(value):
    return None if value is None else value.hex()


bootstrap, topic = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "redrive-suite-python",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
)
partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
unread = set(partitions)
while unread:
    message = consumer.poll(20)
    if message is None:
        sys.exit(f"{topic} could not be read to its end")
    if message.error():
        if message.error().code() != KafkaError._PARTITION_EOF:
            sys.exit(str(message.error()))
        unread.discard(message.partition())
        continue
    headers = [[name, text(value)] for name, value in message.headers() or []]
    record = {
        "partition": message.partition(),
        "offset": message.offset(),
        "key": text(message.key()),
        "value": text(message.value()),
        "headers": headers,
    }
    print(json.dumps(record))
consumer.close()
