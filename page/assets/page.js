"use strict";
// Three things that a page can't do without a script: values under the pointer, tokens by
// the arrow keys, and keeping a long text while somebody types it. Following a run is in
// live.js. Without scripts everything else is still there.

// number writes a value as the server does.
function number(v) {
  const size = Math.abs(v);
  const text = size >= 1e6 || (size > 0 && size < 0.0005) ? v.toPrecision(3) : v.toFixed(3);
  return text.replace("-", "−");
}

// keep keeps what is typed into a field for as long as the tab is open, so that a reload or
// a look at another page loses nothing. A form with data-forget ends that for an address.
function keep(field) {
  const key = "kept " + location.pathname + location.search + " " + (field.name || field.id);
  const kept = sessionStorage.getItem(key);
  if (kept !== null) field.value = kept;
  field.addEventListener("input", () => sessionStorage.setItem(key, field.value));
}

// forget ends what keep does for the fields of an address.
function forget(path) {
  Object.keys(sessionStorage).filter((key) => key.startsWith("kept " + path + " ") || key.startsWith("kept " + path + "?")).forEach((key) => sessionStorage.removeItem(key));
}

// figure shows the values of a curve where the pointer is, or where the arrow keys led.
function figure(element) {
  const svg = element.querySelector("svg");
  const cursor = element.querySelector(".cursor");
  const output = element.querySelector("output");
  const note = element.querySelector("small");
  const left = 40, right = 350, width = 360; // as the server draws
  let data, xs, before; // before is what the texts say while no value is shown
  let at = -1;

  function read() {
    data = JSON.parse(element.dataset.figure);
    data.lines.forEach((l) => { l.points = l.points.map(([x, y, low, high]) => ({ x, y, low, high })); });
    xs = [...new Set(data.lines.flatMap((l) => l.points.map((p) => p.x)))].sort((a, b) => a - b);
    before = [output.textContent, note.textContent];
  }
  read();
  // A renewal has put newer values in place: the step that is shown stays so.
  element.addEventListener("renewed", () => {
    const x = at < 0 ? null : xs[at];
    read();
    if (x !== null && xs.includes(x)) show(xs.indexOf(x));
    else if (x !== null) hide();
  });

  function show(i) {
    at = Math.max(0, Math.min(i, xs.length - 1));
    const x = xs[at];
    const place = left + ((x - data.from) / (data.to - data.from)) * (right - left);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    element.dataset.active = "";
    const parts = [];
    for (const line of data.lines) {
      const p = line.points.find((p) => p.x === x);
      if (!p) continue;
      let text = (data.lines.length > 1 ? line.name + " " : "") + number(p.y);
      if (p.low !== undefined && p.low !== p.high) text += " (" + number(p.low) + " – " + number(p.high) + ")";
      parts.push(text);
    }
    const marks = (data.marks || []).filter((m) => m.x === x).map((m) => m.text);
    output.textContent = data.unit + " " + x;
    note.textContent = [parts.join(", "), ...marks].join(" · ");
  }
  function hide() {
    at = -1;
    delete element.dataset.active;
    [output.textContent, note.textContent] = before;
  }
  const selection = svg.querySelector(".selection");
  let begun = null; // where a range begins, in the drawing's coordinates

  function place(e) {
    const box = svg.getBoundingClientRect();
    return Math.max(left, Math.min(right, ((e.clientX - box.left) / box.width) * width));
  }
  function value(place) {
    return data.from + (place - left) / (right - left) * (data.to - data.from);
  }
  svg.addEventListener("pointermove", (e) => {
    const x = value(place(e));
    let best = 0;
    xs.forEach((v, i) => { if (Math.abs(v - x) < Math.abs(xs[best] - x)) best = i; });
    show(best);
    if (begun === null) return;
    selection.setAttribute("x", Math.min(begun, place(e)));
    selection.setAttribute("width", Math.abs(place(e) - begun));
  });
  svg.addEventListener("pointerleave", hide);
  // Where a range can be shown, it is drawn with the pointer.
  if (selection) {
    svg.addEventListener("pointerdown", (e) => {
      if (e.button !== 0 || e.pointerType === "touch") return;
      begun = place(e);
      svg.setPointerCapture(e.pointerId);
    });
    svg.addEventListener("pointerup", (e) => {
      if (begun === null) return;
      const ends = [begun, place(e)].sort((a, b) => a - b);
      begun = null;
      selection.setAttribute("width", 0);
      if (ends[1] - ends[0] < 8) return;
      const query = new URLSearchParams(location.search);
      query.set("from", Math.max(0, Math.ceil(value(ends[0]))));
      query.set("to", Math.max(1, Math.floor(value(ends[1]))));
      location.search = query;
    });
  }
  element.addEventListener("blur", hide);
  element.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (e.key === "Escape") hide();
    if (!move) return;
    e.preventDefault();
    show(at < 0 ? (move < 0 ? xs.length - 1 : 0) : at + move);
  });
}

// tokens shows what is on record of a token.
function tokens(box, readout) {
  let chosen = null;
  function choose(token) {
    if (!token || !token.dataset.t) return;
    if (chosen) chosen.classList.remove("chosen");
    chosen = token;
    chosen.classList.add("chosen");
    const [id, logprob, advantage, mask, version, entropy, difference] = token.dataset.t.split("|");
    const parts = [JSON.stringify(token.textContent)];
    if (id !== "-1") parts.push("token " + id);
    if (logprob !== "") parts.push("log-probability " + logprob.replace("-", "−"), "probability " + (Math.exp(Number(logprob)) * 100).toPrecision(3) + " %");
    if (advantage !== "") parts.push("advantage " + advantage.replace("-", "−"));
    if (entropy !== "") parts.push("entropy " + entropy);
    if (difference !== "") parts.push("trainer − sampler " + difference.replaceAll("-", "−"));
    parts.push(mask, "version " + version);
    readout.textContent = parts.join(" · ");
  }
  // beside is the token that is nearest on the line below or above.
  function beside(token, step) {
    const from = token.getClientRects()[0];
    let best = null, line = null, distance = Infinity;
    for (let t = token; (t = step > 0 ? t.nextElementSibling : t.previousElementSibling);) {
      const r = t.getClientRects()[0];
      if (!r || Math.abs(r.top - from.top) < r.height / 2) continue;
      if (line === null) line = r.top;
      if (Math.abs(r.top - line) >= r.height / 2) break;
      if (Math.abs(r.left - from.left) < distance) [best, distance] = [t, Math.abs(r.left - from.left)];
    }
    return best;
  }
  box.addEventListener("pointerover", (e) => choose(e.target.closest(".t")));
  box.addEventListener("click", (e) => choose(e.target.closest(".t")));
  box.addEventListener("keydown", (e) => {
    const move = {
      ArrowRight: (t) => t.nextElementSibling, ArrowLeft: (t) => t.previousElementSibling, ArrowDown: (t) => beside(t, 1), ArrowUp: (t) => beside(t, -1),
      Home: () => box.firstElementChild, End: () => box.lastElementChild,
    }[e.key];
    if (!move || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    const inside = chosen && box.contains(chosen);
    choose(inside || e.key === "End" ? move(chosen) : box.firstElementChild);
    if (chosen) chosen.scrollIntoView({ block: "nearest" });
  });
}

// copyable copies what a link leads to, where the browser lets it; else the link is followed.
function copyable(link) {
  if (!navigator.clipboard) return;
  link.addEventListener("click", async (e) => {
    e.preventDefault();
    const name = link.textContent;
    try {
      const reply = await fetch(link.href);
      if (!reply.ok) throw new Error(reply.statusText);
      await navigator.clipboard.writeText(await reply.text());
      link.textContent = "copied";
      setTimeout(() => { link.textContent = name; }, 2000);
    } catch {
      location.href = link.href;
    }
  });
}

// overlays keeps what tokens are coloured by in the address, so that it survives a reload and
// a copied link, and takes it along to the other attempts and calls.
function overlays(fieldset) {
  function carry() {
    const by = new URLSearchParams(location.search).get("by");
    if (!by) return;
    document.querySelectorAll("main nav.pages a").forEach((a) => {
      const to = new URL(a.href);
      if (!/^\/runs(\/[^/]+){5}$/.test(to.pathname)) return;
      to.searchParams.set("by", by);
      a.href = to.pathname + to.search + to.hash;
    });
  }
  fieldset.addEventListener("change", (e) => {
    const here = new URL(location.href);
    here.searchParams.set("by", e.target.id.replace("by-", ""));
    history.replaceState(history.state, "", here);
    carry();
  });
  carry();
}

// enliven gives a part of the page what it needs.
function enliven(part) {
  const all = (css) => [...(part !== document && part.matches(css) ? [part] : []), ...part.querySelectorAll(css)];
  all("[data-figure]").forEach(figure);
  all("[data-copy]").forEach(copyable);
  all("[data-overlay]").forEach(overlays);
  const readout = document.getElementById("readout");
  all(".tokens").forEach((box) => tokens(box, readout));
}

enliven(document);
document.querySelectorAll("[data-keep]").forEach(keep);
document.querySelectorAll("form[data-forget]").forEach((form) => {
  form.addEventListener("submit", () => forget(form.dataset.forget));
});
