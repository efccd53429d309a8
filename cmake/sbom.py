#!/usr/bin/env python3
"""Writes what the programs of a build are made of, as SPDX 2.3 (JSON).

    sbom.py BUILD VERSION OUT [NINJA]

Debian packages whose headers were compiled in (as Ninja knows them) and whose shared libraries are loaded (readelf),
with versions and, where the package says it in machine-readable form, licences.
The same build gives the same bytes: no time except SOURCE_DATE_EPOCH, no folder of the machine.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

BUILD, VERSION, OUT = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
NINJA = sys.argv[4] if len(sys.argv) > 4 else "ninja"
SHIPPED = ["bin/perfpredict", "bin/perfpredict-train", "bin/libperfpredict_mpi.so", "bin/kernels_bench",
           "bin/libkernels_bench_cuda.so", "bin/libkernels_bench_hip.so", "perfmodel/libperfmodel_c.so"]


def output(*words):
    return subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def owners(files):
    """Debian packages that the files come from."""
    # /usr/lib/x is /lib/x to packages that are older than the merge of the two.
    found, files = set(), sorted({*files, *(file.removeprefix("/usr") for file in files)})
    for begin in range(0, len(files), 200):
        for line in output("dpkg-query", "-S", *files[begin:begin + 200]).splitlines():
            found.update(name.split(":")[0].strip() for name in line.rsplit(": ", 1)[0].split(","))
    return found


def headers():
    paths, ships = set(), True
    for line in output(NINJA, "-C", BUILD, "-t", "deps").splitlines():
        path = line.strip()
        if path and not line.startswith(" "):
            ships = not line.startswith(("tests/", "examples/"))
        if ships and line.startswith(" ") and path.startswith("/usr/") and not path.startswith("/usr/lib/gcc"):
            paths.add(str(pathlib.Path(path).resolve()))
    return paths


def libraries():
    paths = set()
    for name in SHIPPED:
        file = BUILD / name
        if not file.exists():
            continue
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", output("readelf", "-dW", file)))
        for soname, path in re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", file), flags=re.M):
            if soname in needed:
                paths.add(str(pathlib.Path(path).resolve()))
    return paths


def licence(package):
    """The licences that the machine-readable copyright file of a package names."""
    file = pathlib.Path("/usr/share/doc") / package / "copyright"
    text = file.read_text(errors="replace") if file.exists() else ""
    return sorted(set(re.findall(r"^License: *([A-Za-z0-9.+-]+) *$", text, flags=re.M)))


# Debian's names of licences in SPDX's words, and packages whose copyright file is prose.
SPDX = {"Expat": "MIT", "Expat with embedded exception": "MIT", "MIT": "MIT", "BSD-3-clause": "BSD-3-Clause", "BSD-2-clause": "BSD-2-Clause",
        "MPL-2": "MPL-2.0", "MPL-2.0": "MPL-2.0", "Apache-2": "Apache-2.0", "Zlib": "Zlib", "CC0-1.0": "CC0-1.0", "X11": "X11",
        "LGPL-2.1+": "LGPL-2.1-or-later", "GPL-2+": "GPL-2.0-or-later"}
IN_PROSE = {"libc6": "LGPL-2.1-or-later", "libc6-dev": "LGPL-2.1-or-later", "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
            "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1", "linux-libc-dev": "GPL-2.0-only WITH Linux-syscall-note"}


def declared(package):
    """The licence of the package as a whole ("Files: *"), as SPDX says it; NOASSERTION: it is not told."""
    file = pathlib.Path("/usr/share/doc") / package / "copyright"
    text = file.read_text(errors="replace") if file.exists() else ""
    for part in re.split(r"\n\s*\n", text):
        found = re.search(r"^License: *(.+?) *$", part, flags=re.M) if re.search(r"^Files: *\*", part, flags=re.M) else None
        if found:
            return SPDX.get(found[1], found[1] if re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9.]+)+", found[1]) else "NOASSERTION")
    return IN_PROSE.get(package, "NOASSERTION")


def package(name, relation):
    version, source, home = (output("dpkg-query", "-W", f"-f=${{Version}}\t${{source:Package}}\t${{Homepage}}", name) + "\t\t").split("\t")[:3]
    names = licence(name)
    return {"SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}", "name": name, "versionInfo": version,
            "supplier": "Organization: Debian", "downloadLocation": home.strip() or "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": declared(name), "copyrightText": "NOASSERTION",
            "licenseComments": f"named by the package: {', '.join(names)}" if names else "see the package's copyright file",
            "comment": relation, "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                                   "referenceLocator": f"pkg:deb/debian/{name}@{version}"}]}


def main():
    compiled = owners(headers())
    loaded = owners(libraries())
    if not loaded:
        sys.exit(f"error: expected programs in {BUILD}, found none")
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    parts = [package(name, " and ".join(text for names, text in ((compiled, "compiled in"), (loaded, "loaded at run time")) if name in names))
             for name in sorted(compiled | loaded)]
    own = {"SPDXID": "SPDXRef-perfmodel", "name": "perfmodel", "versionInfo": VERSION, "supplier": "Organization: perfmodel developers",
           "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "Apache-2.0",
           "licenseDeclared": "Apache-2.0", "copyrightText": "the perfmodel developers"}
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]}]
    for part, name in zip(parts, sorted(compiled | loaded)):
        if name in loaded:
            relations.append({"spdxElementId": own["SPDXID"], "relationshipType": "DYNAMIC_LINK", "relatedSpdxElement": part["SPDXID"]})
        if name in compiled:
            relations.append({"spdxElementId": own["SPDXID"], "relationshipType": "CONTAINS", "relatedSpdxElement": part["SPDXID"]})
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"perfmodel-{VERSION}",
                "documentNamespace": f"https://perfmodel.invalid/spdx/perfmodel-{VERSION}",
                "creationInfo": {"created": datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                                 "creators": ["Tool: cmake/sbom.py"]},
                "packages": [own, *parts], "relationships": relations}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(parts)} packages: {len(loaded)} loaded, {len(compiled)} compiled in")


main()
