// The bar that searches in a terminal. It searches the lines that xterm.js has.

import type { ISearchOptions, SearchAddon } from '@xterm/addon-search';

import { h, iconButton } from './dom.ts';
import { isDark } from './settings.ts';

export const MATCHES = 1000; // matches that the addon counts; then it stops, and the index of a later match is -1

export class Find {
  readonly element: HTMLElement;
  private readonly input = h('input', { 'aria-label': 'Find in the terminal', placeholder: 'Find', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' });
  private readonly count = h('span', { class: 'count', role: 'status' });
  private readonly exact = h('button', { type: 'button', class: 'tool', 'aria-pressed': 'false', 'aria-label': 'Match case', title: 'Match case', text: 'Aa' });
  private readonly undo: { dispose(): void };

  constructor(
    private readonly search: SearchAddon,
    private readonly leave: () => void,
    history: ((text: string) => void) | undefined,
  ) {
    this.element = h('div', { class: 'find', role: 'search' }, this.input, this.count, this.exact,
      iconButton('up', 'Previous match', () => this.go(false), 'Shift+Enter'),
      iconButton('below', 'Next match', () => this.go(true), 'Enter'),
      history ? iconButton('search', 'Search all of its history', () => history(this.input.value), 'Alt+Shift+H') : null,
      iconButton('close', 'Close', () => this.close(), 'Escape'));
    this.exact.addEventListener('click', () => {
      this.exact.setAttribute('aria-pressed', String(this.exact.getAttribute('aria-pressed') !== 'true'));
      this.go(true, true);
    });
    this.input.addEventListener('input', () => this.go(false, true));
    this.element.addEventListener('keydown', (e) => {
      if (e.isComposing) return;
      if (e.key === 'Escape') this.close();
      else if (e.key === 'Enter' && e.target === this.input) this.go(!e.shiftKey);
      else return;
      e.preventDefault();
    });
    this.undo = search.onDidChangeResults(({ resultIndex, resultCount }) => {
      this.count.textContent = this.input.value === '' ? '' : resultCount === 0 ? 'none' : `${resultIndex < 0 ? '' : `${resultIndex + 1} of `}${resultCount}${resultCount < MATCHES ? '' : '+'}`;
    });
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  close(): void {
    this.search.clearDecorations();
    this.undo.dispose();
    this.element.remove();
    this.leave();
  }

  private go(forward: boolean, incremental = false): void {
    const color = isDark() ? { match: '#4a4020', active: '#7a5c00' } : { match: '#fff0b8', active: '#ffd24d' };
    const options: ISearchOptions = {
      incremental, caseSensitive: this.exact.getAttribute('aria-pressed') === 'true',
      decorations: { matchBackground: color.match, activeMatchBackground: color.active, matchOverviewRuler: color.active, activeMatchColorOverviewRuler: color.active },
    };
    if (this.input.value === '') {
      this.search.clearDecorations();
      this.count.textContent = '';
    } else if (forward) this.search.findNext(this.input.value, options);
    else this.search.findPrevious(this.input.value, options);
  }
}
