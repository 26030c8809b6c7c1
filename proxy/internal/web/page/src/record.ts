// A recording of a terminal's output with its times, as an asciicast (version 2), which asciinema plays.

const MAX_BYTES = 64 << 20; // largest size of a recording, which ends there and can still be saved; pane.ts tells it

export class Recording {
  private readonly parts: string[] = [];
  private readonly decoder = new TextDecoder();
  private readonly began = performance.now();
  private bytes = 0;
  private held: (string | Uint8Array)[] | undefined = []; // output before begin
  full = false;

  constructor(cols: number, rows: number, title: string, private readonly filled: () => void = () => undefined) {
    this.add(JSON.stringify({ version: 2, width: cols, height: rows, timestamp: Math.floor(Date.now() / 1000), title }));
  }

  // begin records the first screen, and then the output since the recording was made.
  begin(screen: string): void {
    const held = this.held ?? [];
    this.held = undefined;
    this.event('o', screen);
    for (const data of held) this.wrote(data);
  }

  wrote(data: string | Uint8Array): void {
    if (this.held) return void this.held.push(data);
    const text = typeof data === 'string' ? data : this.decoder.decode(data, { stream: true });
    if (text) this.event('o', text);
  }

  resized(cols: number, rows: number): void {
    this.event('r', `${cols}x${rows}`);
  }

  file(): Blob {
    return new Blob([`${this.parts.join('\n')}\n`], { type: 'application/x-asciicast' });
  }

  private event(kind: 'o' | 'r', data: string): void {
    this.add(JSON.stringify([Number(((performance.now() - this.began) / 1000).toFixed(6)), kind, data]));
  }

  private add(line: string): void {
    if (this.full) return;
    if (this.bytes + line.length > MAX_BYTES) {
      this.full = true;
      return this.filled();
    }
    this.parts.push(line);
    this.bytes += line.length;
  }
}

// save makes the browser download a file.
export function save(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser has written the file by then
}
