/** The type of the listener of each event, by the event's name. */
export type Handlers = { [name: string]: (...args: never[]) => unknown };

function throwAgain(err: unknown): void {
  queueMicrotask(() => {
    throw err;
  });
}

/** An Emitter calls the listeners of an event in the order in which they were added. */
export class Emitter<H extends Handlers> {
  private readonly all = new Map<keyof H, Set<H[keyof H]>>();

  /** on adds a listener. The function that it returns removes the listener. */
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
   * emit calls the listeners, and returns the promises that they return. An error that a listener throws, or with which
   * its promise is rejected, is thrown again in a microtask, because it must not stop the client.
   */
  emit<K extends keyof H>(name: K, ...args: Parameters<H[K]>): PromiseLike<unknown>[] {
    const waits: PromiseLike<unknown>[] = [];
    for (const fn of [...(this.all.get(name) ?? [])]) {
      try {
        const r: unknown = fn(...args);
        if (typeof r !== 'object' || r === null || !('then' in r)) continue;
        const wait = r as PromiseLike<unknown>;
        waits.push(wait);
        wait.then(undefined, throwAgain);
      } catch (err) {
        throwAgain(err);
      }
    }
    return waits;
  }
}
