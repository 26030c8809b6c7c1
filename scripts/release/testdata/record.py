# Compares the files of a wheel with its list of hashes. Argument: the wheel.

import base64
import csv
import hashlib
import io
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    *others, record = wheel.namelist()
    assert record.endswith(".dist-info/RECORD"), record
    rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
    want = []
    for name in others:
        data = wheel.read(name)
        want.append([name, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="), str(len(data))])
    assert rows == [*want, [record, "", ""]], rows
