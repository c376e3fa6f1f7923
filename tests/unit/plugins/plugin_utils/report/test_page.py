# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report in a real browser, by what a person does: search, filter, open a host, compare, print."""

from __future__ import annotations

import base64
import gzip
import json
import re
from urllib.parse import quote

import pytest
from browser import Browser

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.comparison import compare_reports
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import fleet_report, order
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.page import page
from ansible_collections.fleet.cdi.tests.unit.trees import fleet

HOSTS = 140
HOSTILE = "</script><script>harmed=1</script><img src=x onerror=harmed=1><!--"
LINK = "https://grafana.example.org/d/gpu?host={host}&uuid={uuid}"

# Of each element with a text of its own: the contrast of the text to the color behind it, and the text.
CONTRASTS = """(() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => parts(color).slice(0, 3).map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (color.startsWith("rgb(") || (parts(color)[3] ?? 0) === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const own = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
  return [...document.querySelectorAll("body *")]
    .filter((node) => own(node) && node.checkVisibility())
    .filter((node) => !node.closest("svg, .squares, .unseen, .skip, script, dialog, noscript"))
    .filter((node) => !getComputedStyle(node).backgroundColor.startsWith("color("))
    .map((node) => {
      const [one, two] = [luminance(getComputedStyle(node).color), luminance(behind(node))];
      return [(Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05), node.textContent.slice(0, 40), node.className];
    });
})()"""


def made(results, link="", old=None):
    answers = order(
        read_answer(name, fleet.rack(number), result) for number, (name, result) in enumerate(results.items())
    )
    report = fleet_report(answers, fleet.MADE, link=link)
    if old:
        report.update(changes=compare_reports(old, report), since="old.json")
    return report


def results():
    return {fleet.name(host): fleet.result(host) for host in range(HOSTS)}


def test_the_file_has_the_report_and_no_text_of_a_host():
    report = fleet.report(0)
    report["devices"][0].update(serial=HOSTILE)
    text = page(json.dumps(made({HOSTILE: {"report": report}})), HOSTILE)
    assert HOSTILE not in text and text.count("</script>") == 2 and "<img" not in text
    (packed,) = re.findall(r'id="report">([A-Za-z0-9+/=]+)<', text)
    assert json.loads(gzip.decompress(base64.b64decode(packed)))["devices"]["serial"][0] == HOSTILE


def test_the_file_asks_for_nothing():
    text = page(json.dumps(made(results())))
    assert not re.findall(
        r"(?:src|srcset|action)=|url\(|@import|innerHTML|insertAdjacentHTML|document\.write|eval\(", text
    )
    assert "default-src 'none'" in text and "unsafe-inline" not in text
    assert page("{}") == page("{}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a report: show(report, hash)."""

    def open_report(report, at=""):
        path = tmp_path / "report.html"
        path.write_text(page(json.dumps(report)), encoding="utf-8")
        browser.open("about:blank")
        browser.open(f"{path.as_uri()}#{at}")
        browser.wait("document.documentElement.dataset.ready")

    yield open_report
    bad = [one for one in browser.events if one.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]
    asked = [
        one["params"]["request"]["url"] for one in browser.events if one.get("method") == "Network.requestWillBeSent"
    ]
    assert bad == [] and all(url.startswith(("file:///", "blob:")) for url in asked)


def query(browser, text):
    """Type a search as a person does."""
    browser.press("/")
    browser.run("document.getElementById('query').select()")
    browser.type(text)


def texts(browser, selector):
    """The texts of the elements that can be seen."""
    seen = f"[...document.querySelectorAll({selector!r})].filter((one) => one.checkVisibility())"
    return browser.run(f"{seen}.map((one) => one.textContent)")


def status(browser):
    return browser.run("document.getElementById('status').textContent")


@pytest.mark.counterpart("chromium")
class TestInABrowser:
    def test_causes_come_first_with_command_and_limit(self, browser, show):
        show(made(results()))
        counts = texts(browser, ".cause .count")
        assert counts[0] == "6 hosts48 devices" and counts[-1] == "2 hostsno whole answer"
        (limit, *_rest) = texts(browser, ".cause .limit")
        assert limit == "--limit gpu-00022,gpu-00045,gpu-00068,gpu-00091,gpu-00114,gpu-00137"
        assert texts(browser, ".totals button")[0] == "! disagree 50 disagree"

    @pytest.mark.parametrize(
        "word",
        [
            "1650000000403",  # serial
            fleet.device(25, 3)["uuid"].upper(),
            "rack:rack1 0000:5f:00.0 gpu-00025",
            "host:gpu-00025 /dev/nvidia3",
            f"{fleet.hexadecimal(25, 1)[:8]} nvidia3",  # of the pod
            f"{fleet.hexadecimal('c', 25, 1)} nvidia3",  # the whole id of the container
        ],
    )
    def test_search_finds_what_a_ticket_names(self, browser, show, word):
        show(made(results()), "view=devices")
        query(browser, word)
        assert status(browser) == "1 host and 1 device match."
        assert texts(browser, "tbody tr td:nth-child(2)") == ["gpu-00025"]
        assert texts(browser, "tbody tr td:nth-child(3)") == ["nvidia.com/gpu=3"]

    @pytest.mark.parametrize(
        ("word", "host"),
        [
            ("scientist25", "gpu-00025"),
            ("user:Scientist25", "gpu-00025"),
            ("uid:1025", "gpu-00025"),
            ("user:1024", "gpu-00024"),  # a host that does not know the name
            ("uid:1024", "gpu-00024"),
        ],
    )
    def test_search_finds_the_devices_that_a_user_has_open(self, browser, show, word, host):
        show(made(results()), "view=devices")
        query(browser, word)
        assert set(texts(browser, "tbody tr td:nth-child(2)")) == {host}

    def test_a_part_of_a_name_is_no_user(self, browser, show):
        show(made(results()), "view=devices")
        query(browser, "user:scientist2")
        assert status(browser) == "0 hosts and 0 devices match."

    def test_the_map_has_a_square_for_each_device_and_filters(self, browser, show):
        report = made(results())
        show(report, "view=map")
        silent = sum(not count for count in report["hosts"]["devices"])
        assert len("".join(texts(browser, ".squares b"))) == len(report["devices"]["state"]) + silent
        assert len(texts(browser, ".rack h3")) == 4
        browser.run("document.querySelector('.totals button').click()")
        browser.wait("document.getElementById('query').value === 'state:!'")
        assert len(texts(browser, ".host")) == 8
        assert set("".join(texts(browser, ".squares b:not(.dim)"))) == {"!"}
        label = browser.run("document.querySelector('.host:not([hidden])').getAttribute('aria-label')")
        assert label.startswith("gpu-00022: 8 disagree; ") and label.endswith(" old")

    def test_a_host_that_gave_no_answer_is_found_and_says_why(self, browser, show):
        show(made(results()), "view=map")
        query(browser, "timed out")
        assert texts(browser, ".host .name") == ["gpu-00060", "gpu-00121"]
        browser.press("Enter", "Enter")
        browser.wait("document.querySelector('h2') && document.querySelector('.warn')")
        assert "Connection timed out" in texts(browser, ".warn")[0]

    def test_the_page_of_a_host(self, browser, show):
        show(made(results(), LINK), "host=gpu-00022")
        assert texts(browser, "h2") == ["! disagree gpu-00022"]
        assert texts(browser, ".topology text:not(.small)")[:4] == ["NUMA node 0", "!  gpu 0", "!  gpu 1", "mlx5_0"]
        assert "NVL \u00d718: each of 8 devices to each other" in texts(browser, ".topology text")
        assert len(texts(browser, "tbody tr")) == 8
        address = browser.run("document.querySelector('tbody a').href")
        assert address == LINK.format(host="gpu-00022", uuid=quote(fleet.device(22, 0)["uuid"]))

    def test_keys_lead_everywhere_and_the_address_has_the_state(self, browser, show):
        show(made(results()))
        browser.press("2")
        browser.wait("document.querySelector('.rack')")
        browser.press("j", "j", "j", "k")
        assert browser.run("document.activeElement.textContent").startswith("gpu-00001")
        browser.press("Enter")
        browser.wait("document.querySelector('.topology')")
        assert browser.run("location.hash") == "#view=map&host=gpu-00001"
        browser.press("Escape")
        browser.wait("document.querySelector('.rack')")
        query(browser, "gpu-0013")
        browser.press("Escape")
        assert browser.run("location.hash") == "#view=map&q=gpu-0013"
        browser.press("Escape")
        browser.wait("location.hash === '#view=map'")
        browser.press("?")
        assert browser.run("document.getElementById('help').open")

    def test_two_reports_compared(self, browser, show):
        old, new = results(), results()
        gone = new["gpu-00003"]["report"]["devices"].pop()
        new["gpu-00004"]["report"]["devices"][0]["uuid"] = "GPU-other"
        fleet.hold(new["gpu-00005"]["report"]["devices"][7], 5, 9)
        show(made(new, old=made(old)))
        browser.press("4")
        browser.wait("document.querySelector('tbody')")
        rows = texts(browser, "tbody tr")
        assert [row[:30].split("gpu-")[0] for row in rows] == ["\u2212 gone", "⇄ another card", "☍ other holder"]
        assert gone["uuid"] in rows[0] and "GPU-other" in rows[1]
        query(browser, "GPU-other")
        browser.wait("document.querySelectorAll('tbody tr').length === 1")

    def test_texts_of_a_host_stay_texts(self, browser, show):
        bad = {"report": fleet.report(0), "gathered": fleet.MADE}
        bad["report"]["devices"][0].update(serial=HOSTILE, kind=HOSTILE, nodes=[HOSTILE], driver=HOSTILE)
        fleet.hold(bad["report"]["devices"][0], 0, 0)
        bad["report"]["devices"][0]["openers"][0].update(command=HOSTILE, container=HOSTILE, user=HOSTILE)
        fleet.finding(bad["report"], HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0)
        for at in (
            "",
            "view=map",
            "view=devices",
            f"host={quote(HOSTILE)}",
            f"host=x{quote(HOSTILE)}",
            f"q={quote(HOSTILE)}",
        ):
            show(made({HOSTILE: bad}, "javascript:alert(1)//{host}"), at)
            assert browser.run("typeof harmed") == "undefined" and not browser.run("document.images.length")
            assert browser.run("[...document.links].every((one) => one.href.startsWith('file:'))")

    def test_texts_of_a_host_are_seen_as_they_are(self, browser, show):
        """No character turns the direction of a text or ends the line of a command; no text is a mark or a pattern."""
        bad = {"report": fleet.report(0), "gathered": fleet.MADE}
        odd = "\u202e321\u200b\x1b[2K"
        nodes = [f"{odd} $&{{uuid}}$` {{x}}"]
        bad["report"]["devices"][0].update(serial="$&{uuid}$`", uuid="u{serial}", id="i", nodes=nodes)
        fleet.finding(bad["report"], "rule", "", odd, f"`one\ntwo{odd}` ![x](http://x.example) `", 0)
        show(made({"gpu-1": bad}), "host=gpu-1")
        shown = r"\u202e321\u200b\x1b[2K"
        cells = texts(browser, "tbody tr:first-child td li")
        assert "$&{uuid}$`" in cells and "u{serial}" in cells and f"{shown} $&{{uuid}}$` {{x}}" in cells
        assert cells[-1] == shown and f"one two{shown}" in texts(browser, ".cause code")
        browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        current = "document.querySelector('[data-view=causes][aria-current]')"
        for at, is_shown in (("host=gpu-1", f"!{current}"), ("view=causes", current)):
            browser.run(f"copied = ''; location.hash = '{at}'")
            browser.wait(is_shown)
            browser.press("y")
            browser.wait("window.copied")
            step = next(line for line in browser.run("copied").splitlines() if "Next: " in line)
            assert step.endswith(f"Next: `one two{shown}` !\\[x\\](http://x.example) \\`")
        browser.run("copied = ''; [...document.querySelectorAll('.act button')][1].click()")
        browser.wait("window.copied")
        assert browser.run("copied") == f"one two{shown}"

    def test_a_device_with_many_problems_has_a_short_row(self, browser, show):
        bad = {"report": fleet.report(0), "gathered": fleet.MADE}
        for number in range(30):
            fleet.finding(bad["report"], f"rule{number}", "", f"problem {number}", "", 0)
        show(made({"gpu-1": bad}), "view=devices")
        row = texts(browser, "tbody tr:first-child td:last-child li")
        assert len(row) == 21 and row[20] == "and 10 more"

    def test_copies_are_markdown_and_csv_without_formulas(self, browser, show):
        bad = {"report": fleet.report(0), "gathered": fleet.MADE}
        bad["report"]["devices"][0].update(serial="=1+1", uuid="a|b")
        show(made({"gpu-1": bad}), "view=devices&q=/dev/nvidia0")
        browser.run("""(() => {
            navigator.clipboard.writeText = async (text) => { window.copied = text; };
            URL.createObjectURL = (blob) => { window.saved = blob.text(); return 'blob:null/0'; };
            HTMLAnchorElement.prototype.click = () => {};
        })()""")
        browser.press("y")
        browser.wait("window.copied")
        assert browser.run("copied").splitlines()[2].startswith("| gpu-1 | \\<") or "=0 | free | =1+1 |" in browser.run(
            "copied"
        )
        browser.press("e")
        browser.wait("window.saved")
        header, row = browser.run("saved").strip().splitlines()
        assert header.startswith('"host","rack","device"') and '"\'=1+1"' in row and '"a|b"' in row

    def test_it_prints_without_its_controls(self, browser, show):
        show(made(results()), "host=gpu-00022")
        browser.call("Emulation.setEmulatedMedia", media="print")
        try:
            assert not browser.run("document.getElementById('query').checkVisibility()")
            assert browser.run("document.querySelector('.topology').checkVisibility()")
        finally:
            browser.call("Emulation.setEmulatedMedia", media="")
        assert browser.pdf().startswith(b"%PDF-")

    def test_a_screen_reader_has_names_for_everything(self, browser, show):
        show(made(results()), "host=gpu-00022")
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = {}
        for node in nodes:
            if not node["ignored"]:
                roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
        for role in ("button", "link", "searchbox", "navigation", "image", "columnheader"):
            names = roles.get(role, [])
            assert names and (role == "columnheader" or all(names)), (role, names)
        assert {"banner", "main", "heading", "table"} <= roles.keys()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_each_text_has_contrast_and_each_state_a_letter(self, browser, show, scheme):
        """WCAG 2.2, 1.4.3 (text) and 1.4.1: no state is told by its color alone."""
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        try:
            for at in ("view=causes", "view=map", "view=devices", "host=gpu-00022"):
                show(made(results()), at)
                faint = [one for one in browser.run(CONTRASTS) if one[0] < 4.5]
                assert faint == [], at
            background = browser.run("getComputedStyle(document.body).backgroundColor")
        finally:
            browser.call("Emulation.setEmulatedMedia", features=[])
        assert background == {"light": "rgb(246, 247, 249)", "dark": "rgb(16, 21, 27)"}[scheme]
        letters = [text.split()[0] for text in texts(browser, ".totals button")]
        assert len({*letters}) == len(letters) == 6 and all(letters)
