/** A Handlers is what may be listened to: a name, and what is called. */
export type Handlers = { [name: string]: (...args: never[]) => unknown };

/** An Emitter calls who listens, in the order in which they came. */
export class Emitter<H extends Handlers> {
  private readonly all = new Map<keyof H, Set<H[keyof H]>>();

  /** on listens until the function that it returns is called. */
  on<K extends keyof H>(name: K, fn: H[K]): () => void {
    let set = this.all.get(name);
    if (set === undefined) this.all.set(name, (set = new Set()));
    set.add(fn);
    return () => {
      set.delete(fn);
    };
  }

  count(name: keyof H): number {
    return this.all.get(name)?.size ?? 0;
  }

  /**
   * emit returns the promises of those that are not done with it. What a listener
   * throws is thrown where nobody of ours waits: it is the program's own fault.
   */
  emit<K extends keyof H>(name: K, ...args: Parameters<H[K]>): PromiseLike<unknown>[] {
    const waits: PromiseLike<unknown>[] = [];
    for (const fn of [...(this.all.get(name) ?? [])]) {
      try {
        const r: unknown = fn(...args);
        if (typeof r === 'object' && r !== null && 'then' in r) waits.push(r as PromiseLike<unknown>);
      } catch (err) {
        queueMicrotask(() => {
          throw err;
        });
      }
    }
    return waits;
  }
}
