// The page's shortcuts. They name the position of a key and not its character, because Alt changes the characters on
// some keyboards.
//
// The shortcuts use Alt+Shift because readline, zsh and fish handle M-F like M-f, and browsers do not use it.
// Ctrl+Shift+C and V act as in other terminals.

export type Action =
  | 'new' | 'list' | 'split-right' | 'split-down' | 'close' | 'left' | 'right' | 'up' | 'down' | 'next-tab' | 'previous-tab' | 'tab-left' | 'tab-right' | 'find' | 'history' | 'filter' | 'previous-command' | 'next-command'
  | 'past' | 'share' | 'rename' | 'kill' | 'larger' | 'smaller' | 'normal' | 'help' | 'settings' | `tab-${number}`;

export interface Shortcut {
  keys: string; // the keys as the help shows them
  code: string; // KeyboardEvent.code
  action: Action;
  says: string; // description; '' if another shortcut's description includes this one
}

const alt = (keys: string, code: string, action: Action, says: string): Shortcut => ({ keys: `Alt+Shift+${keys}`, code, action, says });

export const shortcuts: Shortcut[] = [
  alt('N', 'KeyN', 'new', 'New session'),
  alt('L', 'KeyL', 'list', 'To the list, and back to the terminal'),
  alt('G', 'KeyG', 'filter', 'Filter the list'),
  alt('D', 'KeyD', 'split-right', 'Split to the right'),
  alt('S', 'KeyS', 'split-down', 'Split below'),
  alt('W', 'KeyW', 'close', 'Close the pane; its session continues'),
  alt('←', 'ArrowLeft', 'left', 'To the pane at the left; so → ↑ ↓'),
  alt('→', 'ArrowRight', 'right', ''),
  alt('↑', 'ArrowUp', 'up', ''),
  alt('↓', 'ArrowDown', 'down', ''),
  alt('.', 'Period', 'next-tab', 'Next tab'),
  alt(',', 'Comma', 'previous-tab', 'Previous tab'),
  alt('PageUp', 'PageUp', 'tab-left', 'Move the tab to the left; so PageDown'),
  alt('PageDown', 'PageDown', 'tab-right', ''),
  ...Array.from({ length: 9 }, (_, i) => alt(i ? String(i + 1) : '1…9', `Digit${i + 1}`, `tab-${i + 1}`, i ? '' : 'To a tab by its number')),
  alt('F', 'KeyF', 'find', 'Find in the terminal'),
  alt('H', 'KeyH', 'history', 'Search all of the session’s history'),
  alt('[', 'BracketLeft', 'previous-command', 'To the command before; so ] to the next (shell integration)'),
  alt(']', 'BracketRight', 'next-command', ''),
  alt('T', 'KeyT', 'past', 'The past of the session; Escape returns'),
  alt('R', 'KeyR', 'rename', 'Rename the session'),
  alt('X', 'KeyX', 'kill', 'End the session; asks first'),
  alt('=', 'Equal', 'larger', 'Larger text'),
  alt('-', 'Minus', 'smaller', 'Smaller text'),
  alt('0', 'Digit0', 'normal', 'Text as large as at first'),
  alt('P', 'KeyP', 'settings', 'Settings'),
  alt('/', 'Slash', 'help', 'This list'),
];

export const keysOf = (action: Action): string | undefined => shortcuts.find((s) => s.action === action)?.keys;

// repeats reports whether a key that is held down does its action again. It must not close one pane after the other.
export const repeats = (action: Action): boolean => !['new', 'split-right', 'split-down', 'close', 'past', 'list', 'find'].includes(action);

export function actionOf(e: KeyboardEvent): Action | undefined {
  if (!e.altKey || !e.shiftKey || e.ctrlKey || e.metaKey || e.isComposing) return undefined;
  return shortcuts.find((s) => s.code === e.code)?.action;
}
