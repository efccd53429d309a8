#!/usr/bin/env python3
"""Prints a Chakra trace as JSON: python3 decode_chakra.py FILE

Written apart from the C++ reader and writer, from the table of field numbers alone and with the
standard library only, so that those two cannot agree on a mistake. Bytes appear as hexadecimal.
"""
import json
import struct
import sys

TYPES = ["", "metadata", "memory load", "memory store", "compute", "send", "receive", "collective"]
# Field number of the single value -> name, decoder; the list has the next number.
VALUES = {
    3: ("double", "<d"), 5: ("float", "<f"), 7: ("int32", 32), 9: ("int64", 64),
    11: ("uint32", 0), 13: ("uint64", 0), 15: ("sint32", "zigzag"), 17: ("sint64", "zigzag"),
    19: ("fixed32", "<I"), 21: ("fixed64", "<Q"), 23: ("sfixed32", "<i"), 25: ("sfixed64", "<q"),
    27: ("bool", "bool"), 29: ("string", "text"), 31: ("bytes", "hex"),
}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            if wire == 2:
                size, at = varint(data, at)
            else:
                size = {1: 8, 5: 4}[wire]
            value, at = data[at:at + size], at + size
            assert len(value) == size
        yield number, value


def ids(data):
    at, found = 0, []
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


def scalar(kind, value):
    if kind == "text":
        return value.decode("utf-8")
    if kind == "hex":
        return value.hex()
    if kind == "bool":
        return value != 0
    if kind == "zigzag":
        return value // 2 if value % 2 == 0 else -(value + 1) // 2
    if kind in (32, 64):
        return value - (1 << 64) if value >> 63 else value
    if kind == 0:
        return value
    return struct.unpack(kind, value)[0]


def elements(kind, data):
    for number, packed in fields(data):
        assert number == 1
        if kind in ("text", "hex"):
            yield scalar(kind, packed)
        elif isinstance(kind, str) and kind.startswith("<"):
            size = struct.calcsize(kind)
            for at in range(0, len(packed), size):
                yield scalar(kind, packed[at:at + size])
        else:
            for value in ids(packed):
                yield scalar(kind, value)


def attribute(data):
    result = {"name": "", "doc": "", "type": "", "value": None}
    for number, value in fields(data):
        if number == 1:
            result["name"] = value.decode("utf-8")
        elif number == 2:
            result["doc"] = value.decode("utf-8")
        elif number in VALUES:
            result["type"], kind = VALUES[number]
            result["value"] = scalar(kind, value)
        elif number - 1 in VALUES:
            name, kind = VALUES[number - 1]
            result["type"] = name + " list"
            result["value"] = list(elements(kind, value))
    return result


def io(data):
    names = {1: "values", 2: "shapes", 3: "types"}
    return {names[number]: value.decode("utf-8") for number, value in fields(data)}


def node(data):
    result = {"id": 0, "name": "", "type": "", "ctrl_deps": [], "data_deps": [], "start_us": 0,
              "duration_us": 0, "inputs": {}, "outputs": {}, "attributes": []}
    for number, value in fields(data):
        if number in (1, 6, 7):
            result[{1: "id", 6: "start_us", 7: "duration_us"}[number]] = value
        elif number == 2:
            result["name"] = value.decode("utf-8")
        elif number == 3:
            result["type"] = TYPES[value]
        elif number in (4, 5):
            result["ctrl_deps" if number == 4 else "data_deps"] += ids(value)
        elif number in (8, 9):
            result["inputs" if number == 8 else "outputs"] = io(value)
        elif number == 10:
            result["attributes"].append(attribute(value))
        else:
            raise ValueError(f"field {number} of a node")
    return result


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    messages, at = [], 0
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at:at + size])
        assert len(messages[-1]) == size
        at += size
    head = {"version": "", "attributes": []}
    for number, value in fields(messages[0]):
        if number == 1:
            head["version"] = value.decode("utf-8")
        else:
            assert number == 2
            head["attributes"].append(attribute(value))
    head["nodes"] = [node(message) for message in messages[1:]]
    json.dump(head, sys.stdout)


if __name__ == "__main__":
    main()
