"""An example or two for the help of each command. A test parses every one of them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "accept-loss": ("accept-loss payments -p P3", "accept-loss --buffer 1"),
    "bench": ("bench", "bench -n 1000000 --bytes 1000"),
    "config check": ("config check shop.toml", "config check shop.toml --no-handlers"),
    "consume": ("consume payments --group audit", "consume payments -g audit --limit 10 --json"),
    "dashboard": ("dashboard", "dashboard --port 8300"),
    "dead-letters list": ("dead-letters list billing", "dead-letters list billing -k account-7"),
    "dead-letters show": ("dead-letters show billing P3@17",),
    "dead-letters retry": (
        "dead-letters retry billing P3@17 P3@18",
        "dead-letters retry billing --key account-7",
        "dead-letters retry billing --all",
    ),
    "dead-letters drop": ("dead-letters drop billing P3@17", "dead-letters drop billing --all -y"),
    "demo": ("demo", "demo -n 100000"),
    "doctor": ("doctor", "doctor --json"),
    "down": ("down", "down --now", "down --delete"),
    "drain": ("drain billing billing-1", "drain 10.0.0.7 --deadline 300"),
    "export": ("export payments backup",),
    "group delete": ("group delete audit", "group delete audit --force --yes"),
    "history": ("history billing", "history billing -n 100"),
    "import": ("import backup payments",),
    "init": ("init shop", "init shop --folder services/shop", "init shop --ops"),
    "kill-orphans": ("kill-orphans",),
    "lag": ("lag", "lag billing --json"),
    "log ls": ("log ls .",),
    "log dump": ("log dump . --from 100 -n 20", "log dump . --frames"),
    "log verify": ("log verify .",),
    "log tail": ("log tail . -n 5", "log tail . --follow"),
    "move": ("move 1 10.0.0.7",),
    "pause": ("pause billing",),
    "plan": ("plan billing 4", "plan --drain 10.0.0.7", "plan --move 1 --to 10.0.0.8"),
    "produce": (
        "produce payments hello --key account-7 -H trace=abc",
        "produce payments --file payments.csv --key-column account",
        "produce payments -s : < lines.txt",
        "produce reminders 'pay' --key customer-7 --delay 3600",
    ),
    "quarantine list": ("quarantine list billing",),
    "quarantine show": ("quarantine show billing account-7",),
    "quarantine retry": ("quarantine retry billing account-7", "quarantine retry billing --all"),
    "quarantine skip": (
        "quarantine skip billing account-7",
        "quarantine skip billing account-7 --all --yes",
    ),
    "queue delete": ("queue delete payments", "queue delete payments --force --yes"),
    "queue purge": ("queue purge payments", "queue purge payments -p P3 --yes"),
    "recover registry": ("recover registry shop.toml --accept-loss",),
    "restart": ("restart coordinator", "restart buffer/1"),
    "resume": ("resume billing",),
    "scale": ("scale billing 4",),
    "seek": (
        "seek billing start -p P3 --dry-run",
        "seek billing 2026-05-01T12:00",
        "seek billing --by 30m --yes",
        "seek billing --shift=-100 -p P3",
    ),
    "stack": ("stack billing-1", "stack billing/billing-1 --all"),
    "status": ("status", "status billing", "status --json"),
    "store check": ("store check postgresql://me@host/db",),
    "store show": ("store show sqlite:///registry.db -g shop.billing",),
    "store copy": ("store copy sqlite:///registry.db redis://host:6379/0",),
    "tail": (
        "tail payments -f",
        "tail payments --key account-7",
        "tail payments --since 10m --grep 'amount.: 3' --json",
    ),
    "top": ("top", "top --interval 2"),
    "up": ("up shop.toml --dry-run", "up shop.toml"),
    "why": ("why P3", "why P3 -g billing"),
}


def epilog_of(command: str) -> str:
    """The end of a command's help; the mark before it keeps its lines as they are."""
    lines = EXAMPLES.get(command, ())
    return "\b\nExamples:\n" + "\n".join(f"  pxrs {line}" for line in lines) if lines else ""
