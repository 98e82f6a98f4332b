"""argparse with errors of one sentence, the nearest known word, and an example in every help."""

from __future__ import annotations

import argparse
import re
import sys
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from kohort.cli.foreign import instead_of_option
from kohort.cli.output import complain

#: Verb -> the command line that its help shows; docs/cli.md has the rest.
EXAMPLES: Final = {
    "kohort up": "kohort up --data-dir ./kohort-data",
    "kohort broker": "kohort broker status",
    "kohort broker status": "kohort broker status",
    "kohort topic": "kohort topic list",
    "kohort topic create": "kohort topic create orders --partitions 4",
    "kohort topic list": "kohort topic list",
    "kohort topic describe": "kohort topic describe orders",
    "kohort topic grow": "kohort topic grow orders --partitions 8",
    "kohort topic offsets": "kohort topic offsets orders --at 2h",
    "kohort topic delete-records": "kohort topic delete-records orders:0,1 --older-than 7d --execute",
    "kohort topic delete": "kohort topic delete orders",
    "kohort send": "printf 'k1:one\\nk2:two\\n' | kohort send orders -K : -H source=shell",
    "kohort tail": "kohort tail orders --from -10 --exit -f '%t-%p@%o %k: %s\\n'",
    "kohort group": "kohort group list",
    "kohort group list": "kohort group list",
    "kohort group describe": "kohort group describe billing",
    "kohort group config": "kohort group config billing consumer.session.timeout.ms=10000",
    "kohort group history": "kohort group history billing --follow",
    "kohort group why": "kohort group why billing --last",
    "kohort group move": "kohort group move billing orders-3 --to worker-2 --wait",
    "kohort group static": "kohort group static billing --registration-timeout 15m --expansion-timeout 1m",
    "kohort group dynamic": "kohort group dynamic billing",
    "kohort group rebalance": "kohort group rebalance billing",
    "kohort group reset-offsets": "kohort group reset-offsets billing --by-duration 2h --execute",
    "kohort group delete-offsets": "kohort group delete-offsets billing --topic orders:0,1 --execute",
    "kohort group remove-members": "kohort group remove-members billing worker-2 --execute",
    "kohort group delete": "kohort group delete billing",
    "kohort cluster": "kohort cluster describe",
    "kohort cluster describe": "kohort cluster describe --fenced",
    "kohort cluster features": "kohort cluster features group.version=1 --execute",
    "kohort cluster quorum": "kohort cluster quorum",
    "kohort cluster log-dirs": "kohort cluster log-dirs --topic orders",
    "kohort cluster reassign": "kohort cluster reassign orders-0=1,2 orders-1=2,3 --execute",
    "kohort cluster elect-leaders": "kohort cluster elect-leaders --execute",
    "kohort transactions": "kohort transactions list",
    "kohort transactions list": "kohort transactions list --state Ongoing --longer-than 60000",
    "kohort transactions describe": "kohort transactions describe billing-1",
    "kohort transactions hanging": "kohort transactions hanging orders",
    "kohort transactions abort": "kohort transactions abort orders-0 --start-offset 17 --execute",
    "kohort transactions fence": "kohort transactions fence billing-1 --execute",
    "kohort config": "kohort config describe topic orders",
    "kohort config describe": "kohort config describe broker 1 --all",
    "kohort config alter": "kohort config alter topic orders retention.ms=60000 --append cleanup.policy=compact",
    "kohort acl": "kohort acl list",
    "kohort acl list": "kohort acl list --topic orders --match",
    "kohort acl add": "kohort acl add --principal alice --operation read --topic orders --group billing",
    "kohort acl remove": "kohort acl remove --principal alice --execute",
    "kohort user": "kohort user list",
    "kohort user list": "kohort user list",
    "kohort user set-password": "kohort user set-password alice --password-file alice.secret",
    "kohort user remove": "kohort user remove alice --execute",
    "kohort quota": "kohort quota list",
    "kohort quota list": "kohort quota list --user alice",
    "kohort quota set": "kohort quota set --user alice producer_byte_rate=1000000 request_percentage=",
    "kohort log": "kohort log check ./kohort-data",
    "kohort log check": "kohort log check ./kohort-data",
    "kohort log repair": "kohort log repair ./kohort-data --execute",
    "kohort log dump": "kohort log dump ./kohort-data/orders-0 --records",
    "kohort log import": "kohort log import /var/lib/kafka --into ./kohort-data",
    "kohort report": "kohort report billing --since 2h --out report.html",
    "kohort demo": "kohort demo --no-spark",
    "kohort completion": 'eval "$(kohort completion bash)"',
}


class Parser(argparse.ArgumentParser):
    """An argparse parser with errors of one sentence and the nearest known word for an unknown one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but let the verb refuse the arguments that it does not know."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown and not self._took_late(parsed, unknown):
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, []

    def _took_late(self, parsed: argparse.Namespace, words: list[str]) -> bool:
        """Whether words behind options go to a list that argparse has ended: `move G --to M t-0`."""
        lists = [action for action in self._actions if not action.option_strings and action.nargs == "*"]
        if not lists or any(word.startswith("-") for word in words):
            return False
        (into,) = lists
        try:
            late = [self._get_value(into, word) for word in words]
        except argparse.ArgumentError as why:
            self.error(str(why))
        setattr(parsed, into.dest, [*getattr(parsed, into.dest), *late])
        return True

    def format_help(self) -> str:
        """Format the help as argparse does, with an example at the end."""
        example = EXAMPLES.get(self.prog)
        return super().format_help() + (f"\nexample:\n  {example}\n" if example else "")

    def error(self, message: str) -> NoReturn:
        complain(message + self._hint(message))
        sys.exit(2)

    def _hint(self, message: str) -> str:
        if "did you mean" in message:
            return ""
        words = unknown_words(message)
        for word in words:
            instead = instead_of_option(self.prog, word)
            if instead:
                return f"; {instead}"
        known = [option for action in self._actions for option in action.option_strings]
        known += [str(choice) for action in self._actions for choice in (action.choices or ())]
        near = [hit for word in words for hit in get_close_matches(word, known, n=1, cutoff=0.65)]
        return f"; did you mean {near[0]}?" if near else f"; see {self.prog} --help"


def unknown_words(message: str) -> list[str]:
    """Return the words that argparse complains about: a wrong choice, or unrecognized options."""
    choice = re.search(r"invalid choice: '(.*?)' \(choose from", message)
    if choice:
        return [choice[1]]
    _, found, rest = message.partition("unrecognized arguments: ")
    return [word.partition("=")[0] for word in rest.split() if word.startswith("-")] if found else []
