/** A version of a release: `v` may precede it, and the text after a hyphen names what came before the release. */
interface Version {
  numbers: number[];
  before: string[];
}

/** isRelease reports whether a text is the version of a release, such as `v1.2.3` or `1.2.3-rc.1`. */
export function isRelease(version: string): boolean {
  return parse(version) !== undefined;
}

/** isOlder reports whether version a is older than b by the rules of semver.org. Both must be versions of releases. */
export function isOlder(a: string, b: string): boolean {
  const left = parse(a), right = parse(b);
  return left !== undefined && right !== undefined && compare(left, right) < 0;
}

function compare(a: Version, b: Version): number {
  for (let i = 0; i < 3; i++) {
    const d = (a.numbers[i] as number) - (b.numbers[i] as number);
    if (d !== 0) return d;
  }
  if (a.before.length === 0 || b.before.length === 0) return b.before.length - a.before.length;
  for (let i = 0; i < Math.max(a.before.length, b.before.length); i++) {
    const d = compareParts(a.before[i], b.before[i]);
    if (d !== 0) return d;
  }
  return 0;
}

function parse(version: string): Version | undefined {
  const parts = /^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$/.exec(version);
  if (parts === null) return undefined;
  return { numbers: parts.slice(1, 4).map(Number), before: parts[4]?.split('.') ?? [] };
}

// compareParts compares parts of the text after the hyphen. Numbers are older than words, and fewer parts than more.
function compareParts(a: string | undefined, b: string | undefined): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? -1 : 1;
  const isNumber = /^\d+$/, left = isNumber.test(a), right = isNumber.test(b);
  if (left && right) return Number(a) - Number(b);
  if (left !== right) return left ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}
