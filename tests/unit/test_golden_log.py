"""A folder that an earlier version left opens as it is, and goes on."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from pathlib import Path

import pytest

from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.replica_log import ReplicaLog
from tests.logs import NOW_MS, contents, put
from tests.settings import log_limits

# Of a process that was killed, from before logs had replicas: six messages in three segments.
BEFORE_REPLICAS = """
eNrtGWmL6zbwrzzyuSwaHTNS/43O8nrsPl5aKJT+944c2XEUe4VfFgphJxjHmluay8k/J7EBL1/T36efv5yMMFY7YwU0
hLzc0vLtdn2GbIV67/kOQLwnTpDtKdZg7+QHihpNCp6y98bk009ftv08519mP43SRpNOW5p6+RBIayWpWK9NsXHaJzRy
4YU9z5o/g88IRvsbnPcie1JRe+0lZltccUaGFIPLWZYGyTYjdacg8hryvV5m2uJpbbouoATzgN0+rwl8w1ce3WT45n/s
NmfvdFH8GNjBM70bfqPwvJMHA/l3gX1Y4Q40PZiUuH7G+GG8woPxCsfi1blEyWYwRCUGTi7pPApVcoCESZTPeH3ieIUx
fqd+y8N9Sh/sU32gqI/tUyZgTp57jkuOspK7fu71qUHfLVYSKF3Thgw6N8x7+WDeH5wDLAmlQrCc7dFE5UNSCR0vc0f1
JorPvH/ivJdj/DBe1YPxqo7FK+dTciUX9CFKLT3wbCmdkhpAFdCfc9Uzx6sa43fqt96t34N+hIJQOB2zIfCuyGE+6Afz
4WB/VAIIi8uOazcgWBQhCq2sdUppjPEzH544H/QYP4xX82C8moPzhiyYsgdvNXAh987k4lPQThCPYSF/xusTx6sZ42v9
/v0t/lZr9V0ttQQmJye8dFJGX2n/8K9fSz7/+fLr+e21MlFgtJA8dfO8beolpWorkrkaViCQJI2uXlgwX6iUWCgUYyYa
UxjPQIrl6Z4O+QUCCxFmpjP8fabQC4UmQxIBJWuKVSO52SZeyayH8YRMEa8WomJaw2vNMpzw1YaFQrJdZbLPzVqvqzKp
tb/Vm1ITmGUutCttxBYWtlOQumDbPk645pGsK5SuPLw/C70JZsGwL9UjdbOzsPBFXqXOam5ivK7rDkrWQ6ke7rfvb+mv
mL+fX86v/ls93bk8oL0ELHRpLXJXGvwqcPUGfVy13RU99u1YdtNqW8/tBQl6eujom0A+Q0LDvidSS7quy5DtsqyXp1e2
V3lTxN1G6LoM+MZp9OUO7fU4Nzm++d+4hIq3ep0oU0luNkjo3zL78pyaXTUKOc7ZMoWWrVQYOAYNNrzFi9yZPeptPRB3
9Ni5fLDHiv2e9pVWreZyLqLrIsUe1BMWf6Dubr/TSm/rkXG1fsCfSe5Uufhc+fsSPnZbD4odPXZHD131VB1zJLod+W5H
/vD8M/tha23a9ijtnE+0B/WZOQ+4sk2xttrP2O501xZhnVYw5x422tUIALetrwztscsYdcmAGvlcC5caYBsPbnfT1fgD
HzT+wJHxh+MTNuvPD04Bg7ebPfG7eHlwCsMBvz04rcn7rXwX/IA/DvjjgD+P/qYa8B8d+ORoo44e6JPh6X/+PAz6weeP
BhgEsPpgfnjsuf/bt/9brf+5vf85c67/i7nOcA82EXlecuD16d//ACTmmRA=
"""
LIMITS = log_limits(segment_bytes_max=900, tail_bytes_max=500, index_interval_bytes=300)


@pytest.mark.parametrize("kind", [PartitionLog, ReplicaLog])
def test_a_log_from_before_replicas_opens_as_it_is_and_goes_on(
    tmp_path: Path, kind: type[PartitionLog]
) -> None:
    files: dict[str, str] = json.loads(zlib.decompress(b64decode(BEFORE_REPLICAS)))
    for name, data in files.items():
        (tmp_path / name).write_bytes(bytes.fromhex(data))
    log = kind.open(
        tmp_path, "q", 0, LIMITS, now_ms=NOW_MS, boot="boot-1", lock_wait_ms=0, log_id="golden"
    )
    assert (log.state, log.end_offset, log.groups, log.recovery) == ("open", 6, {"g": 2}, None)
    assert put(log, 5).repeated
    assert put(log, 6).base_offset == 6
    log.sync()
    if isinstance(log, ReplicaLog):
        assert log.epochs() == [(0, 0)]
        log.advance(7)
    assert contents(log) == {at: b"m%06d" % at for at in range(7)}
    for name, data in files.items():
        if name.endswith(".seg"):
            assert (tmp_path / name).read_bytes().startswith(bytes.fromhex(data))
    log.close()
