// The commands of a shell that reports them (OSC 133). A mark beside each prompt shows how the command ended, and keys
// scroll from one prompt to the next.

import type { IDecoration, IMarker, ITerminalAddon, Terminal } from '@xterm/xterm';

const SHELL = 133; // number of the control string
const MAX = 2000; // number of marks; if a program prints more, the oldest are removed

interface Mark {
  prompt: IMarker;
  output: IMarker | undefined; // beginning of the command's output
  end: IMarker | undefined; // end of the output
  decoration: IDecoration | undefined;
  element: HTMLElement | undefined;
  code: number | undefined; // the exit code, if it is known
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

  // count returns the number of prompts that the terminal still has, and the number of commands that have ended there.
  get count(): { prompts: number; ended: number } {
    const all = this.alive();
    return { prompts: all.length, ended: all.filter((m) => m.end).length };
  }

  dispose(): void {
    for (const m of this.all.splice(0)) this.drop(m);
  }

  // jump scrolls to the next prompt above or below the first visible row. It returns false if there is none.
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

  // lastOutput returns the output of the last command that has ended, or undefined if there is none.
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

  // heard handles an OSC 133: A begins a prompt, C begins the output, and D ends the command.
  private heard(data: string): void {
    const term = this.term!;
    const [kind, ...rest] = data.split(';');
    const last = this.all.at(-1);
    switch (kind) {
      case 'A': {
        const prompt = term.registerMarker(0);
        if (!prompt) return;
        if (last && last.prompt.line === prompt.line) return prompt.dispose(); // the shell has drawn the same prompt again
        this.all.push({ prompt, output: undefined, end: undefined, decoration: undefined, element: undefined, code: undefined });
        if (this.all.length > MAX) this.drop(this.all.shift()!);
        return;
      }
      case 'C':
        if (!last || last.output) return;
        last.output = term.registerMarker(0);
        return this.decorate(last);
      case 'D': {
        if (!last?.output || last.end) return; // an empty line runs no command
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
