// Creates and changes elements through text only: foreign input is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** `given` holds attributes, and `text`, and the listeners `on` by event. Children are nodes or texts. */
export function el(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

export function svg(tag, given = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

function fill(node, { text, on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) mark(node, name, value);
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets the text of a node. An unchanged text costs the browser nothing. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute if its value differs. null and false remove it, true is the empty text. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Makes `order` the children of `parent`, and moves as few nodes as possible. */
export function arrange(parent, order) {
  let at = parent.firstElementChild;
  for (const node of order) {
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}
