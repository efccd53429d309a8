#!/usr/bin/env python3
"""The C interface stays binary compatible with older programs.

    abi_test.py HEADER STORED             fails where a stored declaration is gone or changed
    abi_test.py HEADER STORED --update    stores the declarations of today

STORED holds every declaration of the header, one a line, without comments: functions with their arguments, values of
enumerations, members of structs with their place in it, versions. More may come, after the existing members; existing ones
stay until the soname grows.
"""
import re
import sys

# Grow with each version of the header.
COUNTERS = ("PERFMODEL_C_API_VERSION",)


def declarations(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    lines = []
    for name, value in re.findall(r"^#define (PERFMODEL_\w+) (\d+)\s*$", text, flags=re.M):
        if name not in COUNTERS:
            lines.append(f"#define {name} {value}")
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M).replace("PERFMODEL_C_API", "").replace('extern "C" {', "")
    for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, flags=re.S):
        lines += [f"enum {name}: {' '.join(value.split())}" for value in body.split(",") if value.strip()]
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", text, flags=re.S):
        members = [" ".join(member.split()) for member in body.split(";") if member.strip()]
        lines += [f"struct {name}[{i}]: {member}" for i, member in enumerate(members)]
    text = re.sub(r"typedef (enum|struct) \w+ \{.*?\} \w+;", "", text, flags=re.S)
    for declaration in text.split(";"):
        declaration = " ".join(declaration.split()).replace("( ", "(")
        if "(" in declaration:
            lines.append(declaration)
    return lines


def main():
    header, stored = sys.argv[1], sys.argv[2]
    with open(header, encoding="utf-8") as file:
        today = declarations(file.read())
    if "--update" in sys.argv[3:]:
        with open(stored, "w", encoding="utf-8") as file:
            file.write("\n".join(today) + "\n")
        return
    with open(stored, encoding="utf-8") as file:
        kept = file.read().splitlines()
    lost = [line for line in kept if line not in today]
    for line in lost:
        print("gone or changed:", line)
    if lost or len(kept) < 50:
        sys.exit(1)
    print(f"{len(kept)} declarations are as they were, {len(today) - len(kept)} are new")


main()
