// The commands of a shell that tells of them (OSC 133): a mark beside each prompt, which
// says how the command ended, and the way from one to the next.

import type { IDecoration, IMarker, ITerminalAddon, Terminal } from '@xterm/xterm';

const SHELL = 133; // of the control string
const MAX = 2000; // marks; a program may print more than any shell does, and the oldest go

interface Mark {
  prompt: IMarker;
  output: IMarker | undefined; // where the command's output begins
  end: IMarker | undefined; // where it ends
  decoration: IDecoration | undefined;
  element: HTMLElement | undefined;
  code: number | undefined; // the exit code, once it is known
}

export class Marks implements ITerminalAddon {
  private term: Terminal | undefined;
  private all: Mark[] = [];

  activate(term: Terminal): void {
    this.term = term;
    term.parser.registerOscHandler(SHELL, (data) => {
      if (term.buffer.active.type === 'normal') this.heard(data);
      return false;
    });
  }

  dispose(): void {
    for (const m of this.all.splice(0)) this.drop(m);
  }

  // jump scrolls to the prompt before or behind the rows that are shown, and returns
  // whether there is one.
  jump(forward: boolean): boolean {
    const term = this.term;
    if (!term || term.buffer.active.type !== 'normal') return false;
    const lines = this.alive().map((m) => m.prompt.line);
    const top = term.buffer.active.viewportY;
    const to = forward ? lines.find((l) => l > top) : lines.findLast((l) => l < top);
    if (to === undefined) return false;
    term.scrollToLine(to);
    const at = this.all.find((m) => m.prompt.line === to);
    at?.element?.animate([{ opacity: 0.2 }, { opacity: 1 }], 300);
    return true;
  }

  // lastOutput returns what the last command printed that has ended; undefined if none is known.
  lastOutput(): string | undefined {
    const term = this.term;
    const m = this.alive().findLast((m) => m.output && m.end && !m.output.isDisposed && !m.end.isDisposed);
    if (!term || !m) return undefined;
    const lines: string[] = [];
    for (let y = m.output!.line; y < m.end!.line; y++) {
      const line = term.buffer.normal.getLine(y);
      const text = line?.translateToString(true) ?? '';
      if (line?.isWrapped && lines.length > 0) lines[lines.length - 1] += text;
      else lines.push(text);
    }
    return lines.join('\n');
  }

  private alive(): Mark[] {
    this.all = this.all.filter((m) => !m.prompt.isDisposed);
    return this.all;
  }

  // heard takes one OSC 133: A begins a prompt, C the output, D ends the command.
  private heard(data: string): void {
    const term = this.term!;
    const [kind, ...rest] = data.split(';');
    const last = this.all.at(-1);
    switch (kind) {
      case 'A': {
        const prompt = term.registerMarker(0);
        if (!prompt) return;
        if (last && last.prompt.line === prompt.line) return prompt.dispose(); // the same prompt, drawn again
        this.all.push({ prompt, output: undefined, end: undefined, decoration: undefined, element: undefined, code: undefined });
        if (this.all.length > MAX) this.drop(this.all.shift()!);
        return;
      }
      case 'C':
        if (!last || last.output) return;
        last.output = term.registerMarker(0);
        return this.decorate(last);
      case 'D': {
        if (!last?.output || last.end) return; // an empty line ran nothing
        last.end = term.registerMarker(0);
        const code = Number.parseInt(rest[0] ?? '', 10);
        last.code = Number.isNaN(code) ? undefined : code;
        this.paint(last);
      }
    }
  }

  private decorate(m: Mark): void {
    m.decoration = this.term!.registerDecoration({ marker: m.prompt, width: 1 });
    m.decoration?.onRender((e) => {
      m.element = e;
      this.paint(m);
    });
  }

  private paint(m: Mark): void {
    if (!m.element) return;
    m.element.classList.add('command-mark');
    m.element.dataset.ended = m.end ? (m.code ? 'failed' : 'done') : 'runs';
    m.element.title = m.end ? (m.code === undefined ? 'ended' : `exited ${m.code}`) : 'runs';
  }

  private drop(m: Mark): void {
    m.decoration?.dispose();
    for (const marker of [m.prompt, m.output, m.end]) marker?.dispose();
  }
}
