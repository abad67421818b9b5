"use strict";
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
};

// Examples contain ids from when the document was written; these are valid now.
const uuidv7 = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let now = Date.now();
  for (let at = 5; at >= 0; at--) { bytes[at] = now % 256; now = Math.floor(now / 256); }
  bytes[6] = 0x70 | (bytes[6] & 0x0f);
  bytes[8] = 0x80 | (bytes[8] & 0x3f);
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
};

// Descriptions: paragraphs, `code`, [text](#anchor or URL).
const inline = (text) => (text || "").split(/(`[^`]+`|\[[^\]]+\]\((?:https?:\/\/|#|\/)[^)\s]*\))/).map((piece) => {
  const link = /^\[([^\]]+)\]\(([^)]*)\)$/.exec(piece);
  if (link) return make("a", { href: link[2] }, link[1]);
  return piece.startsWith("`") && piece.length > 2 ? make("code", {}, piece.slice(1, -1)) : piece;
});
const prose = (text) => {
  const paragraphs = (text || "").split(/\n\s*\n/).filter((part) => part.trim());
  return make("div", { class: "desc" }, ...paragraphs.map((part) => make("p", {}, ...inline(part))));
};

const copyable = (pre) => {
  const button = make("button", { type: "button" }, "Copy");
  const text = pre.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  pre.append(button);
  return pre;
};
const block = (text) => copyable(make("pre", {}, text));

for (const pre of document.querySelectorAll("pre[data-curl]")) {
  pre.textContent = pre.textContent.replaceAll("{origin}", location.origin).replaceAll("{txn_id}", uuidv7());
}
for (const pre of document.querySelectorAll("pre")) copyable(pre);

const nameOf = (schema) => {
  const target = schema && (schema.$ref || (schema.allOf && schema.allOf[0] && schema.allOf[0].$ref));
  return target ? target.split("/").pop() : null;
};
const typeOf = (schema) => {
  if (!schema) return "";
  const name = nameOf(schema);
  if (name) return name;
  if (schema.type === "array") return typeOf(schema.items) + "[]";
  if (schema.enum) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
  if (schema.additionalProperties) return "map of " + typeOf(schema.additionalProperties);
  return [].concat(schema.type || "any JSON").join(" or ");
};
const typeNode = (schema) => {
  const text = typeOf(schema);
  const name = /^([A-Z]\w*)(\[\])*$/.exec(text.replace("map of ", ""));
  const code = make("code", {}, text);
  return name ? make("a", { href: "#type-" + name[1] }, code) : code;
};
const bounds = (schema) => {
  if (!schema) return "";
  const found = [];
  if (schema.default !== undefined) found.push("default " + JSON.stringify(schema.default));
  if (schema.minimum !== undefined && schema.maximum !== undefined) found.push(schema.minimum + " to " + schema.maximum);
  if (schema.maxItems !== undefined) found.push("at most " + schema.maxItems.toLocaleString("en"));
  if (schema.maxLength !== undefined) found.push("at most " + schema.maxLength.toLocaleString("en") + " characters");
  return found.length ? " (" + found.join(", ") + ")" : "";
};
const fields = (entries) => {
  const body = make("tbody");
  for (const { name, note, schema, text, required } of entries) {
    const first = make("td", {}, make("code", {}, name));
    if (note) first.append(make("span", { class: "soft" }, " " + note));
    if (required) first.append(make("span", { class: "must" }, " required"));
    const description = prose(text);
    if (bounds(schema)) description.append(make("span", { class: "soft" }, bounds(schema).trim()));
    body.append(make("tr", {}, first, make("td", {}, typeNode(schema)), make("td", {}, description)));
  }
  return make("table", { class: "fields" }, body);
};

let api;
const resolve = (schema) => { const name = nameOf(schema); return name ? api.components.schemas[name] : schema; };
const fieldsOf = (schema) => {
  const required = new Set(schema.required || []);
  return Object.entries(schema.properties || {}).map(([name, inner]) =>
    ({ name, schema: inner, text: inner.description, required: required.has(name) }));
};
const exampleOf = (media) => {
  if (!media) return undefined;
  if (media.example !== undefined) return media.example;
  const first = media.examples && Object.values(media.examples)[0];
  if (first) return first.value;
  const schema = resolve(media.schema);
  if (!schema) return undefined;
  return schema.example !== undefined ? schema.example : schema.examples && schema.examples[0];
};
const shown = (example) => typeof example === "string" ? example : JSON.stringify(example, null, 2);

const curlOf = (path, method, op) => {
  const query = [];
  let url = path;
  for (const parameter of op.parameters || []) {
    const example = parameter.example ?? (parameter.schema && (parameter.schema.example ?? (parameter.schema.examples || [])[0]));
    if (parameter.in === "path") {
      const value = parameter.name === "txn_id" ? uuidv7() : example ?? parameter.name.toUpperCase();
      url = url.replace("{" + parameter.name + "}", value);
    } else if (parameter.in === "query" && parameter.required) {
      query.push(parameter.name + "=" + encodeURIComponent(example ?? parameter.name.toUpperCase()));
    }
  }
  if (query.length) url += "?" + query.join("&");
  const quoted = query.length ? "'" + location.origin + url + "'" : location.origin + url;
  let command = "curl -sS" + (method === "GET" ? "" : " -X " + method) + " " + quoted;
  if (op.security === undefined || op.security.length) command += " \\\n  -H \"authorization: Bearer $TRIBUNAL_API_KEY\"";
  const content = op.requestBody && op.requestBody.content;
  if (content) {
    const [type, media] = Object.entries(content)[0];
    command += " \\\n  -H 'content-type: " + type + "'";
    const example = exampleOf(media);
    if (example !== undefined) command += " \\\n  -d '" + shown(example).replaceAll("'", "'\\''") + "'";
    else command += " \\\n  --data-binary @FILE";
  }
  return command;
};

const operation = (path, method, op) => {
  const summary = make("summary", {},
    make("span", { class: "method " + method }, method), make("code", {}, path),
    make("span", { class: "soft" }, ...inline(op.summary || op.operationId)));
  const inner = make("div");
  if (op.description) inner.append(prose(op.description));
  inner.append(make("h4", {}, "Request"), block(curlOf(path, method, op)));
  if (op.parameters && op.parameters.length) {
    inner.append(make("h4", {}, "Parameters"), fields(op.parameters.map((parameter) => ({
      name: parameter.name, note: parameter.in, schema: parameter.schema, text: parameter.description, required: parameter.required,
    }))));
  }
  if (op.requestBody) {
    inner.append(make("h4", {}, "Body"));
    if (op.requestBody.description) inner.append(prose(op.requestBody.description));
    for (const [type, media] of Object.entries(op.requestBody.content)) {
      const schema = resolve(media.schema) || {};
      inner.append(make("p", { class: "soft" }, type + " ", typeNode(media.schema)));
      if (schema.properties) inner.append(fields(fieldsOf(schema)));
    }
  }
  inner.append(make("h4", {}, "Responses"));
  for (const [status, response] of Object.entries(op.responses)) {
    const line = make("p", {}, make("span", { class: "status" }, status === "default" ? "otherwise" : status), " ");
    line.append(...inline(response.description));
    for (const media of Object.values(response.content || {})) line.append(" · ", typeNode(media.schema));
    inner.append(line);
    if (/^2/.test(status)) {
      for (const media of Object.values(response.content || {})) {
        const example = exampleOf(media);
        if (example !== undefined) { inner.append(block(shown(example))); break; }
      }
    }
  }
  return make("details", { id: "op-" + op.operationId, class: "entry" }, summary, inner);
};

const typeEntry = (name, schema) => {
  const inner = make("div", {}, prose(schema.description));
  if (schema.properties) inner.append(fields(fieldsOf(schema)));
  if (schema.enum) inner.append(make("pre", {}, schema.enum.join("\n")));
  return make("details", { id: "type-" + name, class: "entry" }, make("summary", {}, make("code", {}, name)), inner);
};

const nav = document.getElementById("nav");
const listContents = () => {
  nav.replaceChildren(make("b", {}, "Guide"));
  for (const section of document.querySelectorAll("main > section")) {
    nav.append(make("a", { href: "#" + section.id }, section.dataset.title));
  }
  for (const section of document.querySelectorAll("#operations > section")) {
    nav.append(make("b", {}, section.dataset.title));
    for (const entry of section.querySelectorAll(".entry")) {
      nav.append(make("a", { href: "#" + entry.id, title: entry.querySelector("code").textContent }, entry.id.slice(3)));
    }
  }
};

const search = document.getElementById("search");
const find = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (node) => words.every((word) => (node.id + " " + node.textContent).toLowerCase().includes(word));
  let found = false;
  for (const section of document.querySelectorAll("main section")) {
    const entries = section.querySelectorAll(".entry");
    let any = false;
    for (const entry of entries) { const hit = matches(entry); entry.hidden = !hit; any ||= hit; }
    if (!entries.length) any = matches(section);
    section.hidden = !any;
    found ||= any;
  }
  document.getElementById("empty").hidden = found;
};
search.addEventListener("input", find);
addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
});

const menu = document.getElementById("menu");
const showMenu = (open) => { nav.classList.toggle("open", open); menu.setAttribute("aria-expanded", open); };
menu.addEventListener("click", () => showMenu(!nav.classList.contains("open")));
nav.addEventListener("click", (event) => { if (event.target.tagName === "A") showMenu(false); });

const openTarget = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  if (target.hidden || target.closest("section[hidden]")) { search.value = ""; find(); }
  if ("open" in target) target.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", openTarget);

const load = async () => {
  const reply = await fetch("/openapi.json");
  if (!reply.ok) throw new Error("status " + reply.status);
  api = await reply.json();
  const operations = document.getElementById("operations");
  operations.replaceChildren();
  for (const tag of api.tags || []) {
    const title = tag.name[0].toUpperCase() + tag.name.slice(1);
    const section = make("section", { id: "tag-" + tag.name, "data-title": title }, make("h2", {}, title), prose(tag.description));
    for (const [path, item] of Object.entries(api.paths)) {
      for (const method of ["get", "post", "put", "delete"]) {
        const op = item[method];
        if (op && (op.tags || []).includes(tag.name)) section.append(operation(path, method.toUpperCase(), op));
      }
    }
    operations.append(section);
  }
  const types = document.getElementById("types");
  for (const [name, schema] of Object.entries(api.components.schemas)) types.append(typeEntry(name, schema));
  listContents();
  openTarget();
};
listContents();
load().catch((error) => { document.getElementById("loading").textContent = "Cannot read /openapi.json: " + error.message; });
