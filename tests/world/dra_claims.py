# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims of a foreign DRA driver, which asks nobody before it takes a card."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING

from caller import Caller

from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

if TYPE_CHECKING:
    from world import World


DRIVER = "gpu.example.com"


class DraClaim(Caller):
    """A claim of a foreign DRA driver: it takes a card that it thinks free, writes a spec, and asks nobody."""

    kind = "dra"
    contained = True

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.uid = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        self.name = f"uid:{self.uid}"
        self.spec = self.host.run / f"cdi/{DRIVER}-gpu_{self.uid}.json"
        self.runs = False

    def start(self, amount: int) -> str:
        del amount
        free = sorted(self.world.usable().keys() - self.books.taken())
        if not free or self.books.unsure:
            return "no card"
        slot = self.chance.choice(free)
        self.books.grant(self.name, self.cards([slot]), self.world.kernel.ever)
        path = self.host.alias(slot) if self.chance.random() < 0.5 else self.host.render_node(slot)
        document = spec({f"{self.uid}-0": nodes(path)}, f"{DRIVER}/gpu")
        temporary = self.spec.with_suffix(".new")
        temporary.write_text(json.dumps(document))
        temporary.rename(self.spec)
        self.runs = True
        return f"has [{slot}]"

    @property
    def sure(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return not self.runs

    def end(self, calm: bool = False) -> str:
        """The driver removes the spec; the device plugin frees the card later, if it had seen the claim."""
        del calm
        if self.spec.exists():
            os.unlink(self.spec)
        self.books.doubt(self.name, 1)
        self.runs = False
        return "gone"

    def crash(self) -> None:
        self.end()
