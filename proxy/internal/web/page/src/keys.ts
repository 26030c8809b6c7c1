// The keys that a phone's keyboard lacks. Their buttons do not take the focus, because the keyboard would close.

import { h } from './dom.ts';
import type { TerminalView } from './terminal.ts';

export interface KeyBar {
  element: HTMLElement;
  update(): void; // must be called if target returns another terminal
}

// keyBar returns the keys for the terminal that target returns. paste pastes the clipboard into it.
export function keyBar(target: () => TerminalView | undefined, paste: (t: TerminalView) => void): KeyBar {
  const key = (label: string, name: string, does: (t: TerminalView) => void): HTMLButtonElement => {
    const b = h('button', { type: 'button', 'aria-label': name, text: label });
    b.addEventListener('pointerdown', (e) => e.preventDefault());
    b.addEventListener('click', () => {
      const t = target();
      if (t) does(t);
    });
    return b;
  };
  const control = key('Ctrl', 'Ctrl, for the next key', (t) => {
    t.control = !t.control;
    t.onControl = update;
    update();
    t.focus();
  });
  const update = (): void => control.setAttribute('aria-pressed', String(target()?.control ?? false));
  const element = h('div', { class: 'keys', role: 'toolbar', 'aria-label': 'Keys' },
    key('Esc', 'Esc', (t) => t.type('\x1b')),
    key('Tab', 'Tab', (t) => t.type('\t')),
    control,
    key('←', 'Left', (t) => t.arrow('D')), key('↑', 'Up', (t) => t.arrow('A')), key('↓', 'Down', (t) => t.arrow('B')), key('→', 'Right', (t) => t.arrow('C')),
    key('|', 'Pipe', (t) => t.type('|')), key('/', 'Slash', (t) => t.type('/')), key('-', 'Minus', (t) => t.type('-')),
    key('Paste', 'Paste', paste));
  return { element, update };
}
