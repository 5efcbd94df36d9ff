"use strict";
// The playground: what is said goes to both versions, and what they say is streamed. All
// text is set as text, never as markup.

const place = document.getElementById("playground");

// element makes an element with a class and a text.
function element(name, kind, text) {
  const e = document.createElement(name);
  if (kind) e.className = kind;
  if (text !== undefined) e.textContent = text;
  if (name === "pre" || name === "input" || name === "code") e.dir = "auto";
  return e;
}

// bubble adds a message to a talk and returns where its text goes.
function bubble(talk, role) {
  const box = element("div", "message " + role);
  box.append(element("h4", "", role), element("pre", "", ""));
  talk.append(box);
  return box;
}

// lines yields the events of a stream as they come.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n");
    rest = parts.pop();
    for (const line of parts) {
      if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  }
}

// side is a version and what was said to it.
class Side {
  constructor(section) {
    this.talk = section.querySelector("[data-talk]");
    this.version = section.querySelector("[data-version]");
    this.messages = [];
    this.abort = null;
  }

  clear() {
    this.stop();
    this.messages = [];
    this.talk.replaceChildren();
  }

  stop() {
    if (this.abort) this.abort.abort();
  }

  // say adds a message of the reader's and asks for a reply.
  async say(message, settings) {
    if (message) {
      this.messages.push(message);
      bubble(this.talk, message.role).querySelector("pre").textContent = message.content;
    }
    const box = bubble(this.talk, "assistant");
    const text = box.querySelector("pre");
    this.abort = new AbortController();
    try {
      const system = settings.system ? [{ role: "system", content: settings.system }] : [];
      const reply = await fetch("/playground/reply", {
        method: "POST", headers: { "Content-Type": "application/json" }, signal: this.abort.signal,
        body: JSON.stringify({
          version: this.version.value.trim(), messages: [...system, ...this.messages], tools: settings.tools,
          temperature: settings.temperature, max_tokens: settings.most,
        }),
      });
      if (!reply.ok) throw new Error(await reply.text());
      const said = { role: "assistant", content: "" };
      const calls = [];
      for await (const data of events(reply.body)) {
        if (data === "[DONE]") break;
        const event = JSON.parse(data);
        if (event.error) throw new Error(event.error.message || "the stream broke off");
        const delta = event.choices && event.choices[0] ? event.choices[0].delta || {} : {};
        if (delta.content) {
          said.content += delta.content;
          text.textContent = said.content;
        }
        for (const c of delta.tool_calls || []) {
          const one = calls[c.index] = calls[c.index] || { id: "", type: "function", function: { name: "", arguments: "" } };
          if (c.id) one.id = c.id;
          one.function.name += (c.function && c.function.name) || "";
          one.function.arguments += (c.function && c.function.arguments) || "";
        }
      }
      if (calls.length) said.tool_calls = calls;
      this.messages.push(said);
      box.dataset.done = "";
      if (calls.length) this.askForResults(box, calls, settings);
    } catch (e) {
      box.append(element("p", "warn", e.name === "AbortError" ? "stopped" : e.message));
    } finally {
      this.abort = null;
    }
  }

  // askForResults lets the reader be the tools.
  askForResults(box, calls, settings) {
    const form = element("form", "results");
    const fields = calls.map((c) => {
      const line = element("p", "toolcall");
      line.append(element("b", "", c.function.name), element("code", "", c.function.arguments));
      const field = element("input");
      field.setAttribute("aria-label", "What " + c.function.name + " returns");
      field.placeholder = "what the tool returns";
      form.append(line, field);
      return field;
    });
    form.append(element("button", "", "Return"));
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      fields.forEach((field, i) => {
        this.messages.push({ role: "tool", tool_call_id: calls[i].id, content: field.value });
        bubble(this.talk, "tool").querySelector("pre").textContent = field.value;
      });
      form.querySelectorAll("input, button").forEach((f) => { f.disabled = true; });
      this.say(null, settings);
    });
    box.append(form);
  }
}

if (place) {
  const sides = [...place.querySelectorAll("[data-side]")].map((s) => new Side(s));
  const stop = document.getElementById("stop"), text = document.getElementById("text"), form = document.getElementById("say");
  const read = (id) => document.getElementById(id).value.trim();
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const content = text.value;
    if (!content.trim() || !stop.disabled) return;
    let tools;
    try {
      tools = read("tools") ? JSON.parse(read("tools")) : undefined;
      document.getElementById("tools").setCustomValidity("");
    } catch {
      const field = document.getElementById("tools");
      field.setCustomValidity("This is no JSON.");
      field.reportValidity();
      return;
    }
    text.value = "";
    stop.disabled = false;
    const settings = { system: read("system"), tools, temperature: Number(read("temperature")), most: Number(read("most")) };
    await Promise.all(sides.map((s) => s.say({ role: "user", content }, settings)));
    stop.disabled = true;
    text.focus();
  });
  document.getElementById("tools").addEventListener("input", (e) => e.target.setCustomValidity(""));
  text.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      form.requestSubmit();
    }
  });
  stop.addEventListener("click", () => sides.forEach((s) => s.stop()));
  document.getElementById("clear").addEventListener("click", () => sides.forEach((s) => s.clear()));
}
