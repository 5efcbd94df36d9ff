"use strict";
// Live pages: they load themselves again when their run goes on and put what has changed in
// place, around what a reader has the focus on, has selected, opened, ticked or typed.

// Attributes that the reader or a script sets, so that a renewal leaves them alone.
const kept = new Set(["open", "data-held", "data-active"]);

// keyOf names what an element is about, so that a row is found again below newer rows.
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  const link = node.matches("tr, li, article") ? node.querySelector("a[href], time") : null;
  // A curve without values is another thing than one with: only the second needs a script.
  return [node.nodeName + ("figure" in node.dataset ? "+" : ""), node.dataset.part || node.id || (link && (link.getAttribute("href") || link.dateTime)) || ""].join(" ");
}

// bare reports whether a key says nothing but the kind of its node.
function bare(key) {
  return key.endsWith(" ") || key.startsWith("#");
}

// disturbs reports whether a reader would lose the focus or a selection if a node went.
function disturbs(node) {
  const focused = document.activeElement, selection = getSelection();
  if (focused !== document.body && node.contains(focused)) return true;
  return !selection.isCollapsed && (node.contains(selection.anchorNode) || node.contains(selection.focusNode));
}

// cuts reports whether an end of the selection lies within a part of a text.
function cuts(text, from, to) {
  const s = getSelection();
  if (s.isCollapsed) return false;
  return [[s.anchorNode, s.anchorOffset], [s.focusNode, s.focusOffset]].some(([node, at]) => node === text && at > from && at <= to);
}

// Plan is what a renewal has to do within one part. held says that it would disturb a reader.
class Plan {
  constructor(part) {
    this.part = part;
    this.steps = [];
    this.held = false;
  }

  remove(node) {
    this.held ||= disturbs(node);
    this.steps.push(() => node.remove());
  }

  insert(parent, node, before) {
    this.steps.push(() => {
      parent.insertBefore(node, before);
      if (node.nodeType === Node.ELEMENT_NODE) enliven(node);
    });
  }

  // text changes as few letters as possible, so that a selection around them stays.
  text(old, fresh) {
    const a = old.data, b = fresh.data;
    if (a === b) return;
    let from = 0, end = 0;
    while (from < Math.min(a.length, b.length) && a[from] === b[from]) from++;
    while (end < Math.min(a.length, b.length) - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
    this.held ||= cuts(old, from, a.length - end);
    this.steps.push(() => old.replaceData(from, a.length - end - from, b.slice(from, b.length - end)));
  }

  attributes(old, fresh) {
    for (const { name, value } of fresh.attributes) {
      if (!kept.has(name) && old.getAttribute(name) !== value) this.steps.push(() => old.setAttribute(name, value));
    }
    for (const { name } of [...old.attributes]) {
      if (!kept.has(name) && !fresh.hasAttribute(name)) this.steps.push(() => old.removeAttribute(name));
    }
  }

  children(old, fresh, plans) {
    const wanted = new Set([...fresh.childNodes].map(keyOf)), done = new Set();
    const beside = (node) => {
      do node = node.nextSibling; while (node && done.has(node));
      return node;
    };
    let at = old.firstChild;
    const drop = () => {
      this.remove(at);
      done.add(at);
      at = beside(at);
    };
    for (const next of [...fresh.childNodes]) {
      const key = keyOf(next);
      while (at && !wanted.has(keyOf(at))) drop();
      let same = at;
      while (same && keyOf(same) !== key) same = bare(key) && !bare(keyOf(same)) ? null : beside(same);
      if (!same) {
        this.insert(old, next, at);
        continue;
      }
      if (bare(key)) {
        while (at !== same) drop();
      } else if (at !== same) {
        this.held ||= disturbs(same);
        const before = at;
        this.steps.push(() => old.insertBefore(same, before));
      }
      this.node(same, next, plans);
      done.add(same);
      if (at === same) at = beside(at);
    }
    while (at) drop();
  }

  node(old, fresh, plans) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      this.text(old, fresh);
      return;
    }
    let plan = this;
    if (old.dataset.part) plans.push(plan = new Plan(old));
    plan.attributes(old, fresh);
    if (!("own" in old.dataset)) plan.children(old, fresh, plans);
    if (old.dataset.figure) plan.steps.push(() => old.dispatchEvent(new Event("renewed")));
  }

  // finish does it, or says that the part is held.
  finish() {
    if (this.held) {
      this.part.dataset.held = "held while you use it";
      return;
    }
    delete this.part.dataset.held;
    this.steps.forEach((step) => step());
  }
}

// put puts what differs in a page that was loaded again in place.
function put(fresh) {
  const old = document.getElementById("main"), now = fresh.getElementById("main");
  if (!now) return;
  const whole = new Plan(old), plans = [whole];
  whole.children(old, now, plans);
  // The innermost parts come first, because the outer ones move none of their nodes.
  plans.reverse().forEach((plan) => plan.finish());
}

// tell says at the foot of the page whether it follows, and why not.
function tell(text, link) {
  const status = document.getElementById("follow");
  if (status.dataset.said === text) return;
  status.dataset.said = text;
  status.textContent = text;
  if (link) {
    const a = document.createElement("a");
    [a.href, a.textContent] = link;
    status.append(" ", a);
  }
}

// current says that the page is up to date, but for a part that a reader uses.
function current() {
  const held = document.querySelector("[data-held]") ? "a part is held while you use it" : "";
  tell([document.body.dataset.follow ? "following" : "", held].filter(Boolean).join(", but "));
}

// away says why the server gave no page. reply is undefined if there was no answer at all.
function away(reply) {
  if (!reply) return tell("not up to date: the server is away");
  if (reply.status === 401) return tell("not up to date: your login has ended, or its token was revoked.", ["/login?to=" + encodeURIComponent(location.pathname + location.search), "Log in again"]);
  if (reply.status === 404) return tell("not up to date: there is no such page any more");
  tell("not up to date: the server's answer is " + reply.status + " " + reply.statusText);
}

// renew loads the page again. It answers whether the server gave it.
let renewing = null, again = false;
function renew() {
  if (renewing) {
    again = true;
    return renewing;
  }
  renewing = load().finally(() => {
    renewing = null;
    if (again) {
      again = false;
      renew();
    }
  });
  return renewing;
}

async function load() {
  let reply;
  try {
    reply = await fetch(location.href);
    const text = await reply.text();
    if (!reply.ok) {
      away(reply);
      return false;
    }
    put(new DOMParser().parseFromString(text, "text/html"));
    current();
    return true;
  } catch {
    away();
    return false;
  } finally {
    wait();
  }
}

// wait asks again while the server still counts.
let waiting = 0;
function wait() {
  clearTimeout(waiting);
  if (document.querySelector("[data-again]")) waiting = setTimeout(renew, 1000);
}

// What was held is renewed when the reader lets go of it.
let letting = 0;
function letGo() {
  if (!document.querySelector("[data-held]")) return;
  clearTimeout(letting);
  letting = setTimeout(renew, 300);
}

// The pause before a stream of events is opened again, in milliseconds: it doubles.
const leastPause = 1000, mostPause = 15000;

// follow renews the page whenever its run went on, as long as somebody looks.
function follow(path) {
  let source = null, timer = 0, pause = leastPause, last = "";
  function close() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }
  function open() {
    if (source || document.hidden) return;
    clearTimeout(timer);
    source = new EventSource(path);
    source.addEventListener("begin", (e) => {
      pause = leastPause;
      if (last !== "" && last !== e.data) renew();
      else current();
      last = e.data;
    });
    source.addEventListener("change", (e) => {
      last = e.data;
      renew();
    });
    // A browser gives up after an answer that is no stream, such as a proxy's 502.
    source.onerror = async () => {
      close();
      timer = setTimeout(open, pause);
      pause = Math.min(2 * pause, mostPause);
      if (await renew()) tell("not following: asks again in a moment");
    };
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}

wait();
document.addEventListener("selectionchange", letGo);
document.addEventListener("focusout", letGo);
if (document.body.dataset.follow) follow(document.body.dataset.follow);
// Lists follow no run: they are renewed again and again, as long as somebody looks at them.
if (document.body.dataset.every) setInterval(() => { if (!document.hidden) renew(); }, Number(document.body.dataset.every));
