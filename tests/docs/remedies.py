"""What to do about each error; every class of `pxrs_ray.errors` that is met has its line."""

from __future__ import annotations

REMEDIES = {
    "AlreadyExists": "Use what runs there (`attach`, `topology.group(name)`), or another name.",
    "BufferAway": "Nothing: the call is made again by itself until its deadline.",
    "ChangeWaits": "Nothing: it is made when the registry is back, unless the coordinator ends "
    "before; `pxrs status` names it until then.",
    "ConfigError": "Correct the option at the line that is named; docs/options.md has the bounds.",
    "CoordinatorDeposed": "Nothing: a newer coordinator works. Seen for ever, two clusters share "
    "one registry: give each its `key_prefix`.",
    "DeadlineExceeded": "`pxrs doctor` says what is slow or away; the call can be made again.",
    "DependencyMissing": "Install what is named, on every node that needs it; extras are in the "
    "README.",
    "DiskFull": "Free the disk, or set retention; producers go on by themselves.",
    "FeedConflict": "Give the feed another `feed_id`, or feed the same data as before.",
    "Fenced": "Stop working on that partition: another owner has it. Never try the call again.",
    "HandlerError": "Make the handler importable on the nodes: `--working-dir`, or install it.",
    "HandlerTimeout": "Make the handler faster, or its time longer.",
    "IllegalTransition": "Report it: the call made no sense in this state, and nothing changed.",
    "LeaseOver": "Nothing: it is granted again when the coordinator reaches the buffer. When that "
    "lasts, `pxrs status` says whom it waits for.",
    "LogReplaced": "Bring the right disk back, or `pxrs accept-loss QUEUE`: the other log is kept "
    "beside, under a name that ends in `.aside`.",
    "LogAway": "Nothing: the buffer opens the log again by itself; the message says what it waits "
    "for. Producers and readers wait meanwhile.",
    "LogCorrupted": "`pxrs log` shows the file; restore it, or accept the loss.",
    "LockHeld": "Wait until the other process has ended, or end it: PXRS tries again by itself.",
    "LogLost": "Bring the disk back, or `pxrs accept-loss QUEUE`: the log goes on above the gap.",
    "MessageTooLarge": "Send a reference instead of the data, or raise `message_bytes_max`.",
    "NotFound": "Check the name; the message lists what there is.",
    "NotHeld": "Let it pass on: whoever is the owner delivers the message again.",
    "OffsetOutOfRange": "Seek to where the log begins: retention has dropped what was asked for.",
    "PartitionFull": "Add consumers, wait, or raise `partition_bytes_max`: readers are behind.",
    "ProducerFenced": "Stop this producer: another one has taken its name.",
    "ProtocolError": "Nothing: the connection ends, and Ray carries the calls.",
    "RegistryAway": "Ask again when the registry is back: nothing was changed.",
    "RetentionBlocked": "Let the group that is named pass the messages first, or force it.",
    "SequenceConflict": "Give a feed whose content differs another feed id.",
    "SequenceGap": "Report it, unless messages were appended by hand: an append was lost.",
    "SinkConflict": "Let it pass on: the message is delivered again, and nothing was written yet.",
    "StoreCorrupted": "Restore the registry from its newest state, then `pxrs up`; or go on "
    "with what it holds: `pxrs recover registry FILE --accept-loss`.",
    "SlotWaits": "Bring the host back that is named, with its disk: everything goes on within "
    "seconds. If it never comes, `pxrs accept-loss --buffer N` begins on another disk.",
    "RegistryNotHere": "Start the host that is named, or restore the registry; `pxrs recover "
    "registry FILE --accept-loss` begins without it.",
    "StoreSchemaError": "Install the version of PXRS that wrote the registry, or a newer one.",
    "StoreUnavailable": "Bring the store back; work goes on and commits wait meanwhile.",
    "UnknownMember": "Join again; pull consumers and consumer actors do by themselves.",
    "UnsupportedVersion": "Start the process anew that is named, with the code that is installed "
    "now: `pxrs restart coordinator`.",
    "UsageError": "Correct the call as the message says.",
}
