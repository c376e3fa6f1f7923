/*
Copyright (c) 2026, fleet.cdi contributors
GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later

The report in a browser. Every text in it is foreign: it goes into the page as the text of a node, never as HTML, and with
escapes for what is not visible as itself, as safe_text.py makes them.
*/
"use strict";

(() => {
  // Letter of a state -> name for the style, and for people. The order is that of the totals.
  const STATES = {
    "!": ["bad", "disagree"], "?": ["unknown", "unknown"], H: ["held", "held"], F: ["free", "free"],
    O: ["out", "out of service"], S: ["spare", "spare"],
  };
  const VIEWS = { causes: "Causes", map: "Map", devices: "Devices", changes: "Changes" };
  const KEYS = [
    ["1 2 3 4", "causes, map, devices, changes"], ["/", "search"], ["j k or ↓ ↑", "next, previous row"],
    ["Enter", "open the host"], ["Esc", "back; leave the search, or empty it"], ["y", "copy what is shown as Markdown"],
    ["e", "save the filtered devices as CSV"], ["p", "print"], ["?", "this list"],
  ];
  const WORDS = [
    ["state:!", "devices that disagree; also ? H F O S"], ["host:gpu-1", "hosts whose name begins so"],
    ["rack:rack7", "one rack"], ["cause:1", "a cause, by its number"], ["user:alice", "a user who has devices open"],
    ["uid:1000", "the same by number"],
  ];
  const PAGE = 250; // rows of a table before "more"
  const MOST = 20; // problems of a device in its row; the page of the host has all
  const MARKED = 400; // hosts on the map whose squares show which device matches
  const WRAP = 16; // squares of one element; lines wrap between elements
  const OLD = 86400; // seconds after which a truth is called old

  let data, strings, column, first, hostOf, hostState, findingsOf, lines, offsets, folded;
  let state = { view: "causes", q: "", host: "" };
  let found = null; // {devices, hosts, count}
  let shown = PAGE;
  let rowsOfMap = null;
  const $ = (id) => document.getElementById(id);

  // A character without width, or one that turns the direction of a text, makes it look like another text.
  const HIDDEN = /(?! )[\p{C}\p{Z}]/gu;
  const escape = (letter) => {
    const code = letter.codePointAt(0), [sign, length] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${sign}${code.toString(16).padStart(length, "0")}`;
  };
  const visible = (text) => text.replace(/[\t\r\n]+/g, " ").replace(HIDDEN, escape);
  const shownAs = (child) => typeof child === "string" ? visible(child) : child;

  const make = (space) => (tag, attributes, ...children) => {
    const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") node.addEventListener(name, value);
      else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : shownAs(value));
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== "" && child !== false).map(shownAs));
    return node;
  };
  const el = make(""), svg = make("http://www.w3.org/2000/svg");

  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const span = (seconds) => {
    const units = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size);
    return units ? `${Math.floor(seconds / units[0])} ${units[1]}` : `${Math.max(0, Math.floor(seconds))} s`;
  };
  const when = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
  const now = () => Date.now() / 1000;
  const mark = (letter) => el("span", { class: `mark s-${STATES[letter][0]}`, title: STATES[letter][1] },
    letter, el("span", { class: "unseen" }, ` ${STATES[letter][1]}`));

  // ---- the document

  const hostName = (host) => strings[data.hosts.name[host]];
  const rackOf = (host) => strings[data.hosts.rack[host]];
  const unmarked = (text, words) => text.replace(/\{(uuid|serial|request|brace)\}/g, (mark, name) => words[name] ?? mark);
  const field = (device, name) => unmarked(strings[data.shapes[data.devices.shape[device]][column[name]]],
    { brace: "{", uuid: data.devices.uuid[device], serial: data.devices.serial[device] });
  const deviceName = (device) => `${field(device, "kind")}=${field(device, "names").split(" ")[0]}`;
  const holders = (device) => data.holders[data.devices.held[device]].map(([who, owner, request, status, since]) => ({
    who: unmarked(strings[who], { brace: "{", request: strings[request] }), owner: strings[owner], status: strings[status], since,
  }));
  const openers = (device) => data.openers[data.devices.open[device]].map(([pid, ...rest]) => {
    const [command, uid, unit, container, engine, pod, job, user] = rest.map((value, place) => place === 1 ? value : strings[value]);
    return { pid, command, uid, unit, container, engine, pod, job, user };
  });
  const openerText = (one) => [`pid ${one.pid} ${one.command}`, one.user ? `user ${one.user} (${one.uid})` : `user ${one.uid}`, one.container && `container ${one.container}`,
    one.engine, one.pod && `pod ${one.pod}`, one.job && `job ${one.job}`, one.unit && `unit ${one.unit}`].filter(Boolean).join(" ");
  const openTexts = (device) => field(device, "unknown").split(" ").includes("openers")
    ? ["unknown"] : openers(device).map(openerText);
  const truth = (device, name) => [field(device, name), field(device, `${name}_text`)].filter(Boolean).join(": ");
  const written = (device) => field(device, "files").split(" ").filter(Boolean).join(" ") || truth(device, "written");
  const devicesOf = (host) => Array.from({ length: data.hosts.devices[host] }, (_, place) => first[host] + place);
  const problemsOf = (device) => {
    const host = hostOf[device], all = (data.findings[host] || []).filter((one) => one[4].includes(device - first[host]));
    const more = all.length > MOST ? [`and ${all.length - MOST} more`] : [];
    return [...all.slice(0, MOST).map((one) => strings[one[2]]), ...more];
  };
  const age = (host) => data.hosts.gathered[host] ? now() - data.hosts.gathered[host] : null;
  const dashboard = (host, device) => {
    if (!/^https?:\/\//.test(data.link)) return "";
    const values = { host: hostName(host), device: device === undefined ? "" : deviceName(device),
      serial: device === undefined ? "" : data.devices.serial[device], uuid: device === undefined ? "" : data.devices.uuid[device] };
    return data.link.replace(/\{(host|device|serial|uuid)\}/g, (_, name) => encodeURIComponent(values[name]));
  };

  function prepare() {
    strings = data.strings;
    column = Object.fromEntries(data.shape_fields.map((name, place) => [name, place]));
    const hosts = data.hosts.name.length, count = data.devices.state.length;
    first = new Uint32Array(hosts + 1);
    hostOf = new Uint32Array(count);
    for (let host = 0; host < hosts; host++) {
      first[host + 1] = first[host] + data.hosts.devices[host];
      hostOf.fill(host, first[host], first[host + 1]);
    }
    findingsOf = (host) => (data.findings[host] || []).map(([cause, subject, problem, next, devices]) => ({
      cause, rule: data.causes[cause].rule, subject: strings[subject], problem: strings[problem], next: strings[next], devices,
    }));
    hostState = Array.from({ length: hosts }, (_, host) => {
      if (data.findings[host]) return "!";
      return data.hosts.why[host] || data.devices.state.slice(first[host], first[host + 1]).includes("?") ? "?" : "";
    });
    folded = strings.map((text) => text.toLowerCase());
    offsets = new Uint32Array(count + 1);
    const parts = new Array(count);
    for (let device = 0, end = 0; device < count; device++) {
      parts[device] = `${data.devices.serial[device]} ${data.devices.uuid[device]}`.toLowerCase();
      offsets[device + 1] = end += parts[device].length + 1;
    }
    lines = parts.join("\n") + "\n";
  }

  // ---- search: each word of the query has to be in the host or the device

  const SPECIAL = {
    state: (word, devices, hosts) => {
      const letter = word.toUpperCase();
      for (let device = 0; device < devices.length; device++) devices[device] = data.devices.state[device] === letter;
      for (let host = 0; host < hosts.length; host++) hosts[host] = hostState[host] === letter && !data.hosts.devices[host];
    },
    rack: (word, devices, hosts) => wholeHosts(devices, hosts, (host) => rackOf(host).toLowerCase() === word),
    host: (word, devices, hosts) => wholeHosts(devices, hosts, (host) => hostName(host).toLowerCase().startsWith(word)),
    cause: (word, devices, hosts) => {
      const cause = data.causes[Number(word) - 1];
      for (const host of cause ? cause.hosts : []) {
        const mine = (data.findings[host] || []).filter((one) => one[0] === Number(word) - 1).flatMap((one) => one[4]);
        hosts[host] = 1;
        if (mine.length) for (const place of mine) devices[first[host] + place] = 1;
        else devices.fill(1, first[host], first[host + 1]);
      }
    },
    uid: (word, devices) => {
      opened(devices, (one) => String(one[2]) === word);
    },
    user: (word, devices) => {
      opened(devices, (one) => one[8] ? folded[one[8]] === word : String(one[2]) === word);
    },
  };

  function opened(devices, matches) {
    const match = data.openers.map((list) => list.some(matches));
    for (let device = 0; device < devices.length; device++) devices[device] = match[data.devices.open[device]];
  }

  function wholeHosts(devices, hosts, matches) {
    for (let host = 0; host < hosts.length; host++) {
      hosts[host] = matches(host);
      if (hosts[host]) devices.fill(1, first[host], first[host + 1]);
    }
  }

  function anywhere(word, devices, hosts) {
    const has = new Uint8Array(folded.length);
    for (let place = 0; place < folded.length; place++) has[place] = folded[place].includes(word);
    const shapes = data.shapes.map((shape) => shape.some((place) => has[place]));
    const held = data.holders.map((list) => list.some(([who, owner, request]) => has[who] || has[owner] || has[request]));
    // A container's id is kept short; a search for the whole id has to find it.
    const short = word.length > 12 && /^[0-9a-f]+$/.test(word) ? word.slice(0, 12) : "";
    const open = data.openers.map((list) => list.some(([pid, command, uid, ...rest]) => has[command]
      || String(pid) === word || rest.some((place) => has[place] || (short && folded[place] === short))));
    for (let device = 0; device < devices.length; device++) {
      devices[device] = shapes[data.devices.shape[device]] || held[data.devices.held[device]] || open[data.devices.open[device]];
    }
    for (let at = lines.indexOf(word); at >= 0;) {
      let low = 0, high = devices.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (offsets[middle + 1] <= at) low = middle + 1; else high = middle;
      }
      devices[low] = 1;
      at = lines.indexOf(word, offsets[low + 1]);
    }
    const wiring = data.wiring.map(([, nics]) => nics.some(([names]) => has[names]));
    const rules = data.causes.map((cause) => cause.rule.toLowerCase().includes(word));
    const { name, rack, why, boot_id: boot, release } = data.hosts;
    for (let host = 0; host < hosts.length; host++) {
      const whole = has[name[host]] || has[rack[host]] || has[why[host]] || has[boot[host]] || has[release[host]] || wiring[data.hosts.wiring[host]];
      if (whole) { hosts[host] = 1; devices.fill(1, first[host], first[host + 1]); }
      for (const [cause, subject, problem, next, mine] of data.findings[host] || []) {
        if (!(rules[cause] || has[subject] || has[problem] || has[next])) continue;
        hosts[host] = 1;
        for (const place of mine) devices[first[host] + place] = 1;
      }
    }
  }

  function search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const hosts = new Uint8Array(data.hosts.name.length), devices = new Uint8Array(data.devices.state.length);
    if (!words.length) return { devices: devices.fill(1), hosts: hosts.fill(1), count: devices.length, words };
    words.forEach((word, number) => {
      const some = new Uint8Array(devices.length), whole = new Uint8Array(hosts.length);
      const [, name, value] = word.match(/^(state|rack|host|cause|uid|user):(.+)$/) || [];
      if (name) SPECIAL[name](value, some, whole); else anywhere(word, some, whole);
      for (let device = 0; device < some.length; device++) if (some[device]) whole[hostOf[device]] = 1;
      for (let device = 0; device < some.length; device++) devices[device] = some[device] && (!number || devices[device]);
      for (let host = 0; host < whole.length; host++) hosts[host] = whole[host] && (!number || hosts[host]);
    });
    let count = 0;
    for (const one of devices) count += one;
    return { devices, hosts, count, words };
  }

  // ---- views

  const link = (changes) => "#" + new URLSearchParams(Object.entries({ ...state, host: "", ...changes }).filter(([, value]) => value));
  const hostLink = (host) => el("a", { href: link({ host: hostName(host) }), class: "row" }, hostName(host));
  const empty = (text) => el("p", { class: "empty" }, text);
  const button = (text, call) => el("button", { type: "button", click: call }, text);
  // Text of a next step: what is between backticks is a command.
  const step = (text) => text.split("`").map((part, place) => place % 2 ? el("code", {}, part) : part);

  function causes() {
    const parts = data.causes.map((cause, number) => {
      const hosts = cause.hosts.filter((host) => found.hosts[host]);
      if (!hosts.length) return null;
      const names = hosts.map(hostName);
      const limit = `--limit ${names.join(",")}`;
      const only = { q: `cause:${number + 1}` };
      return el("article", { class: `card cause${cause.unknown ? " silent" : ""}` },
        el("div", { class: "count" }, plural(hosts.length, "host"),
          el("small", {}, cause.unknown ? "no whole answer" : cause.devices ? plural(cause.devices, "device") : "the whole host")),
        el("div", {},
          el("h3", {}, mark(cause.unknown ? "?" : "!"), " ", el("a", { href: link({ view: "map", ...only }), class: "row" }, step(cause.problem)),
            " ", el("span", { class: "rule" }, cause.rule)),
          cause.next && el("p", {}, "Next: ", step(cause.next)),
          el("code", { class: "limit" }, limit.length > 600 ? `${limit.slice(0, 600)} … ${plural(names.length, "host")}` : limit),
          el("div", { class: "act" },
            button("Copy --limit", () => copy(limit, "the option for these hosts")),
            cause.next.includes("`") && button("Copy command", () => copy(visible(cause.next.split("`")[1]), "the command")),
            el("a", { href: link({ view: "map", ...only }) }, "Map"), el("a", { href: link({ view: "devices", ...only }) }, "Devices"))));
    }).filter(Boolean);
    const good = data.devices.state.length && !data.causes.length;
    return parts.length ? parts : [empty(good ? "All truths of all devices agree." : "No cause here.")];
  }

  // Neighbours that look the same are one element: 40,000 elements would take a second. The style cuts it into squares.
  function squares(host, matches) {
    const runs = [];
    for (let device = first[host]; device < first[host + 1]; device++) {
      const letter = data.devices.state[device], dim = matches && !found.devices[device], last = runs[runs.length - 1];
      if (last && last.letter === letter && last.dim === dim && last.count < WRAP) last.count += 1;
      else runs.push({ letter, dim, count: 1 });
    }
    return runs.map(({ letter, dim, count }) => el("b", { class: `q-${STATES[letter][0]}${dim ? " dim" : ""}` }, letter.repeat(count)));
  }

  const hostLabel = (host) => {
    const letters = data.devices.state.slice(first[host], first[host + 1]);
    const counts = Object.entries(STATES).map(([letter, [, name]]) => [letters.split(letter).length - 1, name]).filter(([count]) => count);
    const old = age(host);
    return `${hostName(host)}: ${counts.map(([count, name]) => `${count} ${name}`).join(", ") || "no devices"}`
      + (data.hosts.why[host] ? `; ${strings[data.hosts.why[host]]}` : "") + (old === null ? "; never answered" : `; ${span(old)} old`);
  };

  function map() {
    if (!rowsOfMap) {
      rowsOfMap = { racks: new Map(), rows: [] };
      for (let host = 0; host < data.hosts.name.length; host++) {
        const letters = el("span", { class: "squares", "aria-hidden": "true" }, squares(host), data.hosts.why[host] && !data.hosts.devices[host]
          ? el("b", { class: "q-unknown" }, "?") : "");
        const old = age(host);
        const row = el("a", { class: `host row${hostState[host] === "!" ? " bad" : ""}`, href: `#view=map&host=${encodeURIComponent(hostName(host))}`,
          "data-host": hostName(host), "aria-label": hostLabel(host), title: hostLabel(host) },
          el("span", { class: "name" }, hostName(host)), letters,
          el("span", { class: "age" }, old === null ? "-" : span(old).replace(" ", "")));
        rowsOfMap.rows.push({ row, letters, marked: false, seen: true });
        const name = rackOf(host);
        if (!rowsOfMap.racks.has(name)) rowsOfMap.racks.set(name, { hosts: [], count: el("span") });
        rowsOfMap.racks.get(name).hosts.push(host);
      }
      const cards = [...rowsOfMap.racks].map(([name, rack]) => {
        rack.card = el("section", { class: "card rack" }, el("h3", {}, name || "Hosts without a rack", rack.count),
          rack.hosts.map((host) => rowsOfMap.rows[host].row));
        return rack.card;
      });
      // The query goes along with a plain click. A link of each row with the query would make a search slow.
      rowsOfMap.node = el("div", { class: "racks", click: (event) => {
        const row = event.target.closest(".host");
        if (!row || event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        go({ host: row.dataset.host });
      } }, cards);
      const longest = data.hosts.name.reduce((most, place) => Math.max(most, strings[place].length), 8);
      rowsOfMap.node.style.setProperty("--names", `${Math.min(longest, 28)}ch`);
    }
    let hosts = 0;
    for (const one of found.hosts) hosts += one;
    const marks = found.words.length > 0 && hosts <= MARKED;
    for (const rack of rowsOfMap.racks.values()) {
      let here = 0, bad = 0;
      for (const host of rack.hosts) {
        const one = rowsOfMap.rows[host], seen = found.hosts[host] === 1;
        if (one.seen !== seen) one.row.hidden = !(one.seen = seen);
        if (seen) {
          here += 1;
          bad += hostState[host] === "!";
          if (data.hosts.devices[host] && (marks || one.marked)) { one.letters.replaceChildren(...squares(host, marks)); one.marked = marks; }
        }
      }
      const text = `${plural(here, "host")}${bad ? `, ${bad} disagree` : ""}`;
      if (rack.text === text) continue;
      rack.card.hidden = !here;
      rack.count.textContent = rack.text = text;
    }
    return [hosts ? rowsOfMap.node : empty("No host matches.")];
  }

  function table(header, rows, more) {
    return [el("div", { class: "card scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, header.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows))),
      more ? el("p", {}, button(`Show ${Math.min(more, 4 * PAGE)} more of ${plural(more, "row")}`, () => { shown += 4 * PAGE; draw(); })) : null];
  }

  const lineList = (texts) => texts.length ? el("ul", {}, texts.map((text) => el("li", {}, text))) : "-";
  const holderTexts = (device) => {
    const list = holders(device).map((one) => `${one.who}, ${one.status} for ${span(data.made - one.since)}`);
    return list.length ? list : [truth(device, "promised")];
  };
  const HEADER = ["", "Device", "Wanted", "Written", "Promised", "Real", "Open in", "Serial, uuid", "Where", "Problems"];

  function deviceRow(device, host) {
    const dash = dashboard(hostOf[device], device);
    return el("tr", { class: data.devices.state[device] === "!" ? "wrong" : "" },
      el("td", {}, mark(data.devices.state[device])),
      host === undefined ? el("td", {}, hostLink(hostOf[device])) : null,
      el("td", {}, deviceName(device), dash ? [" ", el("a", { href: dash, target: "_blank", rel: "noopener noreferrer" }, "dashboard")] : null),
      el("td", {}, truth(device, "wanted")), el("td", {}, written(device)), el("td", {}, lineList(holderTexts(device))),
      el("td", {}, truth(device, "real")), el("td", {}, lineList(openTexts(device))),
      el("td", {}, lineList([data.devices.serial[device], data.devices.uuid[device]].filter(Boolean))),
      el("td", {}, lineList([field(device, "pci_address"), field(device, "nodes")].filter(Boolean))),
      el("td", {}, lineList(problemsOf(device))));
  }

  function chosen() {
    const list = [];
    for (let device = 0; device < found.devices.length; device++) if (found.devices[device]) list.push(device);
    return list;
  }

  function devices() {
    const list = chosen();
    if (!list.length) return [empty("No device matches.")];
    return table([HEADER[0], "Host", ...HEADER.slice(1)], list.slice(0, shown).map((device) => deviceRow(device)), Math.max(0, list.length - shown));
  }

  const SORTS = { appeared: "+ appeared", gone: "− gone", swapped: "⇄ another card", holders: "☍ other holder", state: "! other state" };
  const matching = () => data.changes.filter(([, ...texts]) => found.words.every((word) => texts.some((text) => text.toLowerCase().includes(word))));

  function changes() {
    if (!data.since) return [empty("No older report was given: -e fleet_cdi_report_since=old.json compares with one.")];
    const list = matching();
    if (!list.length) return [empty("Nothing changed.")];
    const text = (sort, value) => sort === "state" ? STATES[value][1] : value || "-";
    return table(["Change", "Host", "Device", "Before", "After"], list.slice(0, shown).map(([sort, host, , name, before, after]) => el("tr", {},
      el("td", {}, SORTS[sort]), el("td", {}, el("a", { href: link({ host }), class: "row" }, host)), el("td", {}, name),
      el("td", {}, text(sort, before)), el("td", {}, text(sort, after)))), Math.max(0, list.length - shown));
  }

  // ---- the page of a host

  function hostPage(host) {
    const old = age(host), skew = data.hosts.skew[host], dash = dashboard(host);
    const facts = [
      ["Rack", rackOf(host) || "-"],
      ["Answer", old === null ? "never" : `${span(old)} old (${when(data.hosts.gathered[host])})`],
      ["Running for", data.hosts.uptime[host] ? span(data.hosts.uptime[host]) : "-"],
      ["Boot", strings[data.hosts.boot_id[host]] || "-"], ["Release", strings[data.hosts.release[host]] || "none"],
    ];
    const list = findingsOf(host);
    return [
      el("p", {}, el("a", { href: link({}) }, "← back (Esc)")),
      el("h2", {}, hostState[host] ? mark(hostState[host]) : null, " ", hostName(host)),
      data.hosts.why[host] ? el("p", { class: "card warn" }, step(strings[data.hosts.why[host]])) : null,
      skew ? el("p", { class: "card warn" }, `Its clock is ${span(Math.abs(skew))} ${skew > 0 ? "behind" : "ahead of"} that of the controller.`) : null,
      el("div", { class: "card" }, el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
        dash ? el("p", {}, el("a", { href: dash, target: "_blank", rel: "noopener noreferrer" }, "Dashboard of the host")) : null),
      list.map((one) => el("article", { class: "card cause" }, el("div", { class: "count" }, one.devices.length || "host",
        one.devices.length ? el("small", {}, one.devices.length === 1 ? "device" : "devices") : null),
      el("div", {}, el("h3", {}, mark("!"), " ", one.problem, " ", el("span", { class: "rule" }, one.rule)),
        one.problem.startsWith(one.subject) ? null : el("p", {}, el("code", {}, one.subject)), el("p", {}, "Next: ", step(one.next))))),
      data.hosts.devices[host] ? el("div", { class: "card scroll" }, topology(host)) : null,
      data.hosts.devices[host] ? table(HEADER, devicesOf(host).map((device) => deviceRow(device, host))) : empty("No devices are known."),
    ];
  }

  const BOX = { width: 132, height: 44, gap: 8, pad: 10, title: 18 };

  // Sockets, in them PCIe roots and switches, in them devices and network cards: as lstopo draws them.
  function topology(host) {
    const sockets = new Map();
    const put = (numa, path, item) => {
      const socket = numa === "" ? "No NUMA node" : `NUMA node ${numa}`;
      if (!sockets.has(socket)) sockets.set(socket, new Map());
      const places = sockets.get(socket);
      if (!places.has(path)) places.set(path, []);
      places.get(path).push(item);
    };
    const [links, nics] = data.wiring[data.hosts.wiring[host]];
    for (const device of devicesOf(host)) put(field(device, "numa_node"), field(device, "pcie_path"), { device });
    for (const [names, numa, path] of nics) put(strings[numa], strings[path], { nic: strings[names].split(" ")[0] });
    const { width, height, gap, pad, title } = BOX, parts = [], at = new Map();
    const across = data.hosts.devices[host] > 32 ? 6 : 2;
    let x = pad, bottom = 0;
    for (const [socket, places] of [...sockets].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))) {
      const columns = Math.max(1, Math.min(across, Math.max(...[...places.values()].map((items) => items.length))));
      const inner = columns * (width + gap) - gap + 2 * pad;
      let y = pad + title + 4;
      const drawn = [];
      for (const [path, items] of places) {
        const deep = Math.ceil(items.length / columns) * (height + gap) - gap + title + pad;
        const name = path ? path.split("/").slice(-2).join(" › ") : "not on PCIe";
        drawn.push(svg("rect", { class: "switch", x: x + pad, y, width: inner, height: deep, rx: 5 }),
          svg("text", { class: "small", x: x + 2 * pad, y: y + 13 }, name));
        items.forEach((item, number) => {
          const left = x + 2 * pad + (number % columns) * (width + gap), top = y + title + Math.floor(number / columns) * (height + gap);
          drawn.push(item.nic !== undefined ? nicBox(item.nic, left, top) : deviceBox(item.device, left, top));
          if (item.device !== undefined) at.set(item.device - first[host], [left + width / 2, top + height]);
        });
        y += deep + gap;
      }
      parts.push(svg("rect", { class: "socket", x, y: pad, width: inner + 2 * pad, height: y - pad, rx: 7 }),
        svg("text", { x: x + pad, y: pad + 15 }, socket), drawn);
      x += inner + 3 * pad;
      bottom = Math.max(bottom, y);
    }
    bottom += pad;
    const sorts = new Map();
    for (const one of links) {
      const name = `${strings[one[2]]}${one[3] > 1 ? ` ×${one[3]}` : ""}`;
      sorts.set(name, [...(sorts.get(name) || []), one]);
    }
    for (const [name, list] of sorts) {
      const ends = [...new Set(list.flatMap(([a, b]) => [a, b]))].filter((end) => at.has(end));
      const whole = list.length === ends.length * (ends.length - 1) / 2;
      if (list.length <= 8 && !whole) {
        for (const [a, b] of list) {
          const [[ax, ay], [bx, by]] = [at.get(a), at.get(b)];
          parts.push(svg("path", { class: "link", d: `M${ax} ${ay} C${ax} ${ay + 26} ${bx} ${by + 26} ${bx} ${by}` }));
        }
      } else {
        parts.push(svg("path", { class: "link", d: `M${pad} ${bottom + 8}H${x - pad}` }));
      }
      const text = whole ? `each of ${ends.length} devices to each other` : list.map(([a, b]) => `${a}–${b}`).join(", ");
      parts.push(svg("text", { class: "small", x: pad, y: bottom + 22 }, `${name}: ${text.length > 150 ? plural(list.length, "link") : text}`));
      bottom += 28;
    }
    return svg("svg", { class: "topology", viewBox: `0 0 ${x} ${bottom + pad}`, width: x, role: "img",
      "aria-label": `How the devices of ${hostName(host)} are wired; the table has their states` }, parts.flat(2));
  }

  const cut = (text, length) => text.length > length ? `${text.slice(0, length - 1)}…` : text;

  function deviceBox(device, x, y) {
    const letter = data.devices.state[device];
    const kind = field(device, "kind").split("/").pop();
    return [svg("rect", { class: `device ${STATES[letter][0]}`, x, y, width: BOX.width, height: BOX.height, rx: 4 },
      svg("title", {}, `${deviceName(device)}: ${STATES[letter][1]}`)),
    svg("text", { x: x + 7, y: y + 18 }, `${letter}  ${cut(`${kind} ${field(device, "names").split(" ")[0]}`, 15)}`),
    svg("text", { class: "small", x: x + 7, y: y + 34 }, cut(field(device, "pci_address") || field(device, "nodes"), 20)
      + (field(device, "nic_relation") ? ` · ${field(device, "nic_relation")}` : ""))];
  }

  const nicBox = (name, x, y) => [svg("rect", { class: "nic", x, y, width: BOX.width, height: BOX.height, rx: 4 }),
    svg("text", { x: x + 7, y: y + 18 }, cut(name, 18)), svg("text", { class: "small", x: x + 7, y: y + 34 }, "network")];

  // ---- what leaves the page

  // A spreadsheet takes a cell that begins with one of these for a formula.
  const cell = (value) => {
    const text = String(value).replace(/[\r\n\0]+/g, " ");
    return `"${(/^[=+\-@\t\uff1d\uff0b\uff0d\uff20]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
  };
  const plainRow = (device) => [hostName(hostOf[device]), rackOf(hostOf[device]), deviceName(device), data.devices.serial[device],
    data.devices.uuid[device], field(device, "pci_address"), STATES[data.devices.state[device]][1], truth(device, "wanted"),
    written(device), holderTexts(device).join("; "), truth(device, "real"), openTexts(device).join("; "),
    problemsOf(device).join("; ")];
  const COLUMNS = ["host", "rack", "device", "serial", "uuid", "pci_address", "state", "wanted", "written", "promised", "real", "open_in", "problems"];

  function saveCsv() {
    const text = [COLUMNS, ...chosen().map(plainRow)].map((row) => row.map(cell).join(",")).join("\r\n");
    const address = URL.createObjectURL(new Blob([text + "\r\n"], { type: "text/csv" }));
    el("a", { href: address, download: "devices.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    say(`Saved ${plural(found.count, "device")}.`);
  }

  const escaped = (text) => visible(String(text)).replace(/[\\|`*_<>\[\]]/g, "\\$&");
  // A command of a next step stays one. Around it, nothing of a host becomes a picture or a link.
  const escapedStep = (text) => text.split("`").map((part, place, parts) => place % 2 === 0 ? escaped(part)
    : place + 1 < parts.length ? `\`${visible(part)}\`` : escaped(`\`${part}`)).join("");
  const grid = (rows) => [rows[0], rows[0].map(() => "---"), ...rows.slice(1)].map((row) => `| ${row.join(" | ")} |`).join("\n");

  function markdown() {
    const host = current();
    if (state.view === "changes" && host < 0) {
      return grid([["change", "host", "device", "before", "after"], ...matching().map(([sort, name, , device, before, after]) => [sort, name, device, before, after].map(escaped))]);
    }
    if (state.view === "causes" && host < 0) {
      return data.causes.map((cause) => [cause, cause.hosts.filter((one) => found.hosts[one])]).filter(([, hosts]) => hosts.length)
        .map(([cause, hosts]) => `- **${plural(hosts.length, "host")}**: ${escaped(cause.problem)} (${escaped(cause.rule)})`
          + (cause.next ? `\n  Next: ${escapedStep(cause.next)}` : "") + `\n  \`--limit ${hosts.map(hostName).join(",")}\``).join("\n");
    }
    const list = host >= 0 ? devicesOf(host) : chosen().slice(0, 4 * PAGE);
    const head = host >= 0 ? `## ${escaped(hostName(host))}\n\n${findingsOf(host).map((one) => `- ${escaped(one.problem)}\n  Next: ${escapedStep(one.next)}\n`).join("")}\n` : "";
    return head + grid([["host", "device", "state", "serial", "promised", "problems"],
      ...list.map((device) => plainRow(device)).map((row) => [0, 2, 6, 3, 9, 12].map((place) => escaped(row[place])))]);
  }

  async function copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = el("textarea", { class: "unseen" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say(`Copied ${what}.`);
  }

  const say = (text) => { $("status").textContent = text; };

  // ---- state: the address has it, so a link shows the same

  const current = () => state.host ? data.hosts.name.findIndex((place) => strings[place] === state.host) : -1;

  function go(changes) {
    location.hash = new URLSearchParams(Object.entries({ ...state, ...changes }).filter(([, value]) => value)).toString();
  }

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const view = given.get("view");
    const before = state;
    state = { view: Object.hasOwn(VIEWS, view) ? view : data.causes.length ? "causes" : "map", q: given.get("q") || "", host: given.get("host") || "" };
    if (before.q !== state.q || before.view !== state.view) shown = PAGE;
    if (document.activeElement !== $("query")) $("query").value = state.q;
    draw(before.view !== state.view || before.host !== state.host);
  }

  function draw(moved) {
    found = search(state.q);
    const host = current();
    const parts = state.host && host < 0 ? [empty(`No host ${state.host} is in this report.`)]
      : host >= 0 ? hostPage(host) : { causes, map, devices, changes }[state.view]();
    const nodes = parts.flat(2).filter(Boolean);
    if (nodes.length !== 1 || $("main").firstChild !== nodes[0]) $("main").replaceChildren(...nodes);
    for (const one of $("views").children) {
      if (one.dataset.view === state.view && !state.host) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
      one.href = link({ view: one.dataset.view });
    }
    for (const one of $("totals").children) one.setAttribute("aria-pressed", found.words.includes(`state:${one.dataset.letter.toLowerCase()}`));
    let hosts = 0;
    for (const one of found.hosts) hosts += one;
    say(state.q ? `${plural(hosts, "host")} and ${plural(found.count, "device")} match.` : "");
    if (moved) window.scrollTo(0, 0);
  }

  function toggle(letter) {
    const word = `state:${letter}`;
    const words = state.q.split(/\s+/).filter(Boolean);
    const rest = words.filter((one) => !one.toLowerCase().startsWith("state:"));
    go({ q: (words.includes(word) ? rest : [...rest, word]).join(" "), host: "" });
  }

  function move(by) {
    const rows = [...document.querySelectorAll("main .row")].filter((row) => row.getClientRects().length);
    const place = rows.indexOf(document.activeElement);
    const next = rows[Math.max(0, Math.min(rows.length - 1, place < 0 ? 0 : place + by))];
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  }

  const back = () => { if (state.host) go({ host: "" }); else if (state.q) { $("query").value = ""; go({ q: "" }); } };
  const ACTS = {
    "/": () => $("query").focus(), j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    y: () => copy(markdown(), "Markdown"), e: saveCsv, p: () => window.print(), "?": () => $("help").showModal(), Escape: back,
    ...Object.fromEntries(Object.keys(VIEWS).map((view, place) => [String(place + 1), () => go({ view, host: "" })])),
  };

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = event.target === $("query");
    if (typing && event.key === "Escape") { $("query").blur(); return; }
    if (typing && event.key === "ArrowDown") { event.preventDefault(); $("query").blur(); move(1); return; }
    if (typing || !Object.hasOwn(ACTS, event.key)) return;
    event.preventDefault();
    ACTS[event.key]();
  }

  function frame() {
    const hosts = data.hosts.name.length;
    $("made").textContent = `${plural(hosts, "host")}, ${plural(data.devices.state.length, "device")}; made ${when(data.made)}, ${span(now() - data.made)} ago`
      + (now() - data.made > OLD ? ": old" : "");
    const counts = Object.fromEntries(Object.keys(STATES).map((letter) => [letter, 0]));
    for (const letter of data.devices.state) counts[letter] += 1;
    $("totals").append(...Object.entries(STATES).map(([letter, [, name]]) => el("button", { type: "button", "data-letter": letter,
      "aria-pressed": "false", click: () => toggle(letter) }, mark(letter), ` ${counts[letter].toLocaleString("en")} ${name}`)));
    $("views").append(...Object.entries(VIEWS).map(([view, name], place) => el("a", { "data-view": view, title: `Key ${place + 1}` },
      name, { causes: ` ${data.causes.length}`, changes: data.since ? ` ${data.changes.length}` : "" }[view] || "")));
    $("help").append(el("h2", { id: "help-title" }, "Keyboard"),
      el("dl", { class: "facts" }, KEYS.flatMap(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
      el("h2", {}, "Words of the search"),
      el("dl", { class: "facts" }, WORDS.flatMap(([word, text]) => [el("dt", {}, el("code", {}, word)), el("dd", {}, text)])),
      el("form", { method: "dialog" }, el("button", {}, "Close")));
    $("keys").addEventListener("click", ACTS["?"]);
    $("csv").addEventListener("click", saveCsv);
    $("markdown").addEventListener("click", ACTS.y);
    $("query").addEventListener("input", () => {
      history.replaceState(null, "", link({ q: $("query").value.trim() }));
      read();
    });
    $("search").addEventListener("submit", (event) => { event.preventDefault(); $("query").blur(); move(1); });
    document.addEventListener("keydown", pressed);
    window.addEventListener("hashchange", read);
  }

  async function open() {
    const text = atob($("report").textContent), packed = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place++) packed[place] = text.charCodeAt(place);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    data = JSON.parse(await new Response(stream).text());
    prepare();
    frame();
    read();
    document.documentElement.dataset.ready = Math.round(performance.now());
  }

  open().catch((error) => {
    $("main").replaceChildren(el("p", { class: "empty" }, `This browser can't open the report (${error.message}). It needs DecompressionStream: `
      + "Chromium 80, Firefox 113, Safari 16.4, or newer. report.json and report.csv have the same content."));
  });
})();
