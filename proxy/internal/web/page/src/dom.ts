// Functions that make elements. They never parse a text as HTML.

type Child = Node | string | false | null | undefined;

// Props are attributes by name. Names that begin with on are listeners; text is the text of the element. If a value is
// false or undefined, the attribute is not set.
export type Props = { [name: string]: string | number | boolean | undefined | ((e: never) => void) };

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') e.addEventListener(name.replace(/^on/, ''), value as EventListener);
    else if (name === 'text') e.textContent = String(value);
    else e.setAttribute(name, value === true ? '' : String(value));
  }
  for (const c of children) if (c) e.append(c);
  return e;
}

// arrange makes elements the children of a parent, in this order. An element that is in its place is not moved, because it
// would lose the focus, the pointer and a drag.
export function arrange(parent: Element, children: readonly Element[]): void {
  const wanted = new Set(children);
  for (const old of [...parent.children]) if (!wanted.has(old)) old.remove();
  children.forEach((e, i) => {
    if (parent.children[i] !== e) parent.insertBefore(e, parent.children[i] ?? null);
  });
}

// setText changes the text of an element if it is another one.
export function setText(e: Element, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}

const SVG = 'http://www.w3.org/2000/svg';

// The lines of the icons, on a field of 16 by 16.
const paths = {
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  plus: 'M8 3v10M3 8h10',
  close: 'M4 4l8 8M12 4l-8 8',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  right: 'M2.5 3h11v10h-11zM8 3v10',
  down: 'M2.5 3h11v10h-11zM2.5 8h11',
  search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.2 3.2',
  share: 'M8 9.5v-7M5.5 4.5L8 2l2.5 2.5M3.5 8v5h9V8',
  gear: 'M2.5 5h6M11.5 5h2M10 3.5v3M2.5 11h2M7.5 11h6M6 9.5v3',
  help: 'M5.8 6.2a2.2 2.2 0 1 1 3.2 2c-.7.4-1 .8-1 1.6M8 12.5h.01',
  up: 'M4 10l4-4 4 4',
  below: 'M4 6l4 4 4-4',
  before: 'M10 4l-4 4 4 4',
  after: 'M6 4l4 4-4 4',
  past: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.4 1.6',
} as const;

export type Icon = keyof typeof paths;

export function icon(name: Icon): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'icon');
  svg.dataset.icon = name;
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', paths[name]);
  svg.append(path);
  return svg;
}

// iconButton returns a button with an icon and a name for screen readers.
export function iconButton(name: Icon, label: string, onclick: (e: MouseEvent) => void, keys?: string): HTMLButtonElement {
  return h('button', { type: 'button', class: 'tool', 'aria-label': label, 'aria-keyshortcuts': keys, title: keys ? `${label} (${keys.replaceAll('+', ' + ')})` : label, onclick }, icon(name));
}
