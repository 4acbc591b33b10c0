// Elements, made and changed by text alone: nothing that comes from outside is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** `given`: attributes; `class` and `text` as such, `on` an object of listeners. Children are nodes or texts. */
export function el(tag, given = {}, ...children) {
  return filled(document.createElement(tag), given, children);
}

export function svg(tag, given = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), given, children);
}

function filled(node, { text, on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) mark(node, name, value);
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Set a text, if it isn't that already: what doesn't change costs the browser nothing. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute, if it isn't that already; null and false take it away, true is the empty text. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
}

/** Bring children into this order, moving as few as possible. */
export function arrange(parent, wanted) {
  let at = parent.firstElementChild;
  for (const node of wanted) {
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}
