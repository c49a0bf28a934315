  // What is typed as a queue or a machine chooses incidents, their bands and messages alike; the search chooses all else, too.
  const fields = [...document.querySelectorAll("[data-by]")];
  const wanted = () => Object.fromEntries(fields.map((field) => [field.dataset.by, field.type === "checkbox" ? (field.checked ? field.value : "") : wantedIn(field)]));
  const named = (of) => Object.fromEntries(data.columns.map((name, i) => [name, of[i]]));
  const known = (text) => visible(text ?? "").toLowerCase();
  const machines = data.machines.map(known);
  const kindsOf = (outcome, severity) => [severity, ...outcome.split(", ")];
  let asked = wanted();
  let linked = {}; // what a figure asks of the one list that it leads to
  const askedOf = (list) => (linked.list === list ? linked : asked);
  /** Opens a folded part to show what was chosen in it; it is folded again before something else is. */
  const opened = new Set();
  const unfold = (part) => { if (!part.open) { part.open = true; opened.add(part); } };
  const LEAST_SEARCHED = 2; // characters
  const wordsOf = (by) => (by.search?.length >= LEAST_SEARCHED ? by.search.split(/\s+/) : []);
  const hasAll = (text, words) => words.every((word) => text.includes(word));
  const isAskedOf = (list) => ["queue", "managers", "kind"].some((by) => askedOf(list)[by]) || wordsOf(askedOf(list)).length > 0;
  function isChosen(list, { queue, managers, kinds, text }) {
    const by = askedOf(list);
    return queue.includes(by.queue ?? "") && managers.includes(by.managers ?? "") && (!by.kind || kinds.includes(by.kind)) && hasAll(text(), wordsOf(by));
  }

  /** What can be found of a part of the page: its words, and those that are cut short in it. */
  const texts = new WeakMap();
  function textOf(part) {
    if (!texts.has(part)) {
      const whole = [part, ...part.querySelectorAll("[title], [data-copy], [data-text], [data-queue], [data-managers]")].flatMap(({ title, dataset }) => [title, dataset.copy, dataset.text, dataset.queue, dataset.managers]);
      const copy = part.cloneNode(true);
      copy.querySelectorAll("button").forEach((button) => button.remove());
      texts.set(part, [copy.textContent, ...whole].filter(Boolean).join(" ").replaceAll("\u202f", "").toLowerCase());
    }
    return texts.get(part);
  }
  const savedTexts = new Map();
  function textOfSaved(row, names) {
    if (!savedTexts.has(row)) savedTexts.set(row, known(`${row.slice(0, data.columns.length).join(" ")} ${names}`).replaceAll("_", " "));
    return savedTexts.get(row);
  }

  /** Whether the filter chooses a message of the whole list, of which the page shows the first ones only. */
  function isWanted(list, row) {
    const [severity, place] = row.slice(data.columns.length);
    const { outcome, destination_queue: queue } = named(row);
    const queues = known(`${queue ?? ""} ${data.queue_names[queue] ?? ""}`);
    return isChosen(list, { queue: queues, managers: machines[place], kinds: kindsOf(outcome, severity), text: () => textOfSaved(row, `${queues} ${machines[place]}`) });
  }

  function chooseIncidents() {
    const all = [...document.querySelectorAll("details.incident")];
    const by = ["severity", "queue", "managers", "new"].filter((name) => asked[name]), words = wordsOf(asked);
    const isAsked = by.length > 0 || words.length > 0;
    all.forEach((incident) => {
      incident.hidden = !(by.every((name) => incident.dataset[name].toLowerCase().includes(asked[name])) && hasAll(textOf(incident), words));
      const band = document.querySelector(`.bands [href="#${incident.id}"]`);
      if (band) band.parentElement.hidden = incident.hidden;
    });
    document.querySelectorAll("#repaired, #repaired-bands, #earlier").forEach((part) => { if (isAsked && part.querySelector("details.incident:not([hidden]), .bands > :not([hidden])")) unfold(part); });
    document.getElementById("incidents-filtered").textContent = isAsked ? `${all.filter((incident) => !incident.hidden).length} of ${all.length} listed` : "";
  }

  /** The messages of a list that are not among those shown with their proof, but that the filter chooses. */
  const MOST_FOUND = 100;
  function showFound(section, list, shown) {
    section.querySelector(".found")?.remove();
    if (!data.lists[list]) return [0, 0];
    const found = data.lists[list].filter((row, i) => i >= shown && isWanted(list, row));
    if (!found.length) return [0, data.lists[list].length - shown];
    const box = add(section, "div", "", { class: "found" });
    const scroll = add(box, "div", "", { class: "scroll", tabindex: "0", role: "group", "aria-label": "More messages that match" });
    const table = add(scroll, "table", "", { class: "cards" });
    add(table, "caption", "More that match, without what proves it");
    const head = add(add(table, "thead"), "tr");
    ["Outcome", "Number", "Message and label", "Queue and sender", "First and last seen, UTC"].forEach((name) => add(head, "th", name, { scope: "col" }));
    const body = add(table, "tbody");
    found.slice(0, MOST_FOUND).forEach((row) => {
      const one = named(row), line = add(body, "tr");
      const last = one.numbers > 1 ? `–${number(one.number + one.numbers - 1)}` : "";
      add(line, "th", one.outcome.replaceAll("_", " "), { scope: "row" });
      add(line, "td", `${number(one.number)}${last}`, { "data-label": "Number" });
      const short = (id) => id.replace(/^([^-\\]+)-[^\\]*/, "$1…"); // a GUID's first part, as everywhere in the lists
      add(line, "td", visible([one.message_id ? short(one.message_id) : "never seen", one.label].filter(Boolean).join(", ")), { class: "queue" });
      const sender = `from ${short(one.source_queue_manager)}${one.first_address ? ` at ${one.first_address}` : ""}`;
      add(line, "td", visible(`${one.destination_queue ?? "not named"}, ${sender}`), { class: "queue" });
      add(line, "td", [...new Set([one.first_seen, one.last_seen])].filter(Boolean).join(" to ") || "no time");
    });
    sortable(table);
    if (found.length > MOST_FOUND) add(box, "p", `${number(found.length - MOST_FOUND)} more match: save them as CSV.`);
    return [found.length, data.lists[list].length - shown];
  }

  function chooseMessages() {
    document.querySelectorAll(".filters button.clear").forEach((button) => { button.hidden = !fields.some((field) => (field.type === "checkbox" ? field.checked : field.value)); });
    let matching = 0, all = 0;
    document.querySelectorAll("section.messages").forEach((section) => {
      const rows = [...section.querySelectorAll("tr[data-kind]")];
      if (!rows.length) return;
      const isAsked = isAskedOf(section.id);
      rows.forEach((row) => {
        const { queue, managers, kind } = row.dataset;
        row.hidden = isAsked && !isChosen(section.id, { queue: queue.toLowerCase(), managers: managers.toLowerCase(), kinds: kind.split(" "), text: () => textOf(row) });
      });
      section.querySelectorAll(".list").forEach((part) => {
        const some = part.querySelector("tr[data-kind]:not([hidden])");
        part.hidden = isAsked && !some;
        if (isAsked && some && part.tagName === "DETAILS") unfold(part);
      });
      let [found, more] = isAsked ? showFound(section, section.id, rows.length) : [0, 0];
      if (!isAsked) section.querySelector(".found")?.remove();
      found += rows.filter((row) => !row.hidden).length;
      section.querySelector(".chosen").hidden = !isAsked;
      section.querySelector(".matching").textContent = isAsked ? `${found ? number(found) : "None"} of ${number(rows.length + more)} match.` : "";
      const save = section.querySelector(".save");
      if (save) {
        const words = save.querySelector("span");
        words.dataset.all ??= words.textContent;
        words.textContent = isAsked ? `As CSV, the ${number(data.lists[section.id].filter((row) => isWanted(section.id, row)).length)} that match:` : words.dataset.all;
      }
      matching += found;
      all += rows.length + more;
    });
    const said = document.getElementById("messages-filtered");
    if (said) said.textContent = isAskedOf("") ? `${matching ? number(matching) : "none"} of ${number(all)} rows` : "";
  }

  /** What is listed beside incidents and messages, of which the search chooses. */
  const OTHERS = [
    ["#findings details.finding", "finding", "findings", "#findings"],
    ["#session-table tbody tr", "session", "sessions", "#sessions"],
    ["#pictures details.session", "picture", "pictures", "#pictures"],
    ["#fitness tbody tr", "capture", "captures", "#fitness"],
  ];
  function chooseOthers() {
    const words = wordsOf(asked);
    OTHERS.forEach(([chosen]) => document.querySelectorAll(chosen).forEach((one) => {
      const isSession = chosen.startsWith("#session-table");
      one.hidden = !(hasAll(textOf(one), words) && (!isSession || one.dataset.text.toLowerCase().includes(asked.session ?? "")));
    }));
    const all = [...document.querySelectorAll("#session-table tbody tr")];
    const said = document.getElementById("filtered");
    if (said) said.textContent = asked.session || words.length ? `${all.filter((row) => !row.hidden).length} of ${all.length} listed` : "";
  }

  /** Says how much of each part the search found, with a link to it, and opens what is folded around it. */
  function showSearch() {
    const said = document.getElementById("found"), words = wordsOf(asked);
    said.textContent = "";
    if (words.length) {
      const many = (chosen) => document.querySelectorAll(chosen).length;
      const inList = ({ id }) => many(`#${id} tr[data-kind]:not([hidden])`) + (data.lists[id]?.filter((row, i) => i >= many(`#${id} tr[data-kind]`) && isWanted(id, row)).length ?? 0);
      const parts = [
        [many("details.incident:not([hidden])"), "incident", "incidents", "#incidents"],
        ...[...document.querySelectorAll("section.messages")].map((list) => [inList(list), ...Array(2).fill(list.querySelector("h3").dataset.words), `#${list.id}`]),
        ...OTHERS.map(([chosen, ...called]) => [many(`${chosen}:not([hidden])`), ...called]),
      ].filter(([count]) => count);
      said.append(parts.length ? "Found: " : said.dataset.none);
      parts.forEach(([count, one, more, place], i) => { if (i) said.append(", "); add(said, "a", `${number(count)} ${count === 1 ? one : more}`, { href: place }); });
      document.querySelectorAll("main details:not([open])").forEach((part) => {
        if (part.closest("[hidden]") || part.matches(".session, .rows") || !part.querySelector(FOUND) || !hasAll(textOf(part), words)) return;
        unfold(part);
      });
    }
    highlight(words);
  }
  const FOUND = "tr:not([hidden]), details.incident:not([hidden]), details.finding:not([hidden])";

  /** Marks the words that were searched for, without a change to the page; where a browser cannot, nothing is marked. */
  const MOST_MARKED = 1_000;
  function highlight(words) {
    if (!window.Highlight) return;
    const ranges = [];
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (words.length && ranges.length < MOST_MARKED && walker.nextNode()) {
      const node = walker.currentNode, text = node.data.toLowerCase();
      if (text.length !== node.data.length) continue;
      words.forEach((word) => {
        for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(node, at); range.setEnd(node, at + word.length);
          ranges.push(range);
        }
      });
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  // The address of the page names the place, and behind a question mark what is chosen: it can be kept and sent.
  const placeNamed = () => location.hash.slice(1).split("?")[0];
  function keepInAddress() {
    const chosen = new URLSearchParams();
    fields.forEach((field) => { const value = field.type === "checkbox" ? (field.checked ? field.value : "") : field.value.trim(); if (value) chosen.set(field.dataset.by, value); });
    if (linked.list) Object.entries({ outcome: linked.kind, machine: linked.managers }).forEach(([name, value]) => { if (value) chosen.set(name, value); });
    const place = linked.list ?? placeNamed(), query = String(chosen);
    history.replaceState(null, "", `${location.href.split("#")[0]}${place || query ? "#" : ""}${place}${query ? `?${query}` : ""}`);
  }
  function takeFromAddress() {
    const [list, query] = location.hash.slice(1).split("?");
    if (query === undefined) return;
    const chosen = new URLSearchParams(query);
    fields.forEach((field) => { const value = chosen.get(field.dataset.by) ?? ""; if (field.type === "checkbox") field.checked = value === field.value; else field.value = value; });
    const [kind, managers] = [chosen.get("outcome"), chosen.get("machine")];
    choose(list && (kind || managers) ? { list, kind: kind ?? undefined, managers: managers ?? undefined } : {});
  }

  fields.forEach((field) => field.addEventListener("input", () => {
    fields.filter((other) => other !== field && other.dataset.by === field.dataset.by).forEach((other) => { other.value = field.value; });
    choose();
    keepInAddress();
  }));

  function choose(only = {}) {
    asked = wanted();
    linked = only;
    opened.forEach((part) => { part.open = false; });
    opened.clear();
    if (document.getElementById("incidents-filtered")) chooseIncidents();
    chooseMessages();
    chooseOthers();
    showSearch();
  }

  /** Shows everything again: by the buttons, and before a figure of the headline leads to its rows. */
  function clearFilters() {
    fields.forEach((field) => { if (field.type === "checkbox") field.checked = false; else field.value = ""; });
    choose();
    keepInAddress();
  }
  document.querySelectorAll('button.clear, #tonight a[href^="#"]').forEach((part) => part.addEventListener("click", clearFilters));

  // A figure of one outcome or of one machine leads to these messages of its list; all else stays as it is.
  document.querySelectorAll("a[data-outcome], a[data-machine]").forEach((link) => link.addEventListener("click", () => {
    linked = { list: link.hash.slice(1), kind: link.dataset.outcome, managers: link.dataset.machine };
    chooseMessages();
    keepInAddress();
  }));

  const openTarget = () => {
    const target = document.getElementById(placeNamed());
    if (!target) return;
    const folded = target.classList.contains("messages") ? ":scope > details" : ":scope > details.part";
    target.querySelectorAll(folded).forEach((part) => { part.open = true; });
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", () => {
    takeFromAddress();
    keepInAddress();
    openTarget();
  });

  document.querySelectorAll(".needs-script").forEach((part) => { part.hidden = false; });
  // On a phone, the long parts are folded, and of the incidents all but the first.
  if (matchMedia("(max-width: 40rem)").matches) document.querySelectorAll("details.part, details.incident ~ details.incident").forEach((part) => { part.open = false; });
  takeFromAddress();
  openTarget();
