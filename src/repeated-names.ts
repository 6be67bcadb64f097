/**
 * Finds a name that an object of a JSON text has twice. `JSON.parse` keeps the last one and says nothing; another reader of the
 * same text may keep the first, and the two would see different requests (RFC 8259 4, RFC 7493 2.3). Pure.
 */
const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPEN_ARRAY = 0x5b
const CLOSE_ARRAY = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d

/**
 * One pass, without recursion: the text may be nested without end.
 * @param json that `JSON.parse` has taken
 * @param matters whether it does there
 * @returns where it stands for the second time, from the outermost name or place in a list on
 */
export function findRepeatedName(
  json: string,
  matters: (path: readonly (string | number)[]) => boolean = () => true,
): (string | number)[] | undefined {
  /** What is open around here: the names that an object has so far; undefined for an array. */
  const open: (Set<string> | undefined)[] = []
  /** Of each of these the name or the place that is being read. */
  const path: (string | number)[] = []
  let isNameNext = false
  for (let at = 0; at < json.length; at++) {
    switch (json.charCodeAt(at)) {
      case QUOTE: {
        const end = endOfString(json, at)
        if (isNameNext) {
          const name = readString(json.slice(at, end + 1))
          const names = open.at(-1)!
          path[path.length - 1] = name
          if (names.has(name) && matters(path)) return path
          names.add(name)
          isNameNext = false
        }
        at = end
        break
      }
      case OPEN_OBJECT:
        open.push(new Set())
        path.push('')
        isNameNext = true
        break
      case OPEN_ARRAY:
        open.push(undefined)
        path.push(0)
        break
      case COMMA:
        isNameNext = open.at(-1) !== undefined
        if (!isNameNext) path.push((path.pop() as number) + 1)
        break
      case CLOSE_OBJECT:
      case CLOSE_ARRAY:
        open.pop()
        path.pop()
        isNameNext = false
        break
    }
  }
  return undefined
}

/** Where the string that begins at `start` has its closing quote. */
function endOfString(json: string, start: number): number {
  let at = start + 1
  for (; json.charCodeAt(at) !== QUOTE; at++) if (json.charCodeAt(at) === BACKSLASH) at++
  return at
}

/** `"\u0061"` is the same name as `"a"`. */
function readString(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1)
}
