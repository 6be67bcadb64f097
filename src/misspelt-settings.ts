/**
 * Names in the environment that are nearly those of settings. Without a word the setting would be what it is when nobody sets it. Pure.
 */

/** Shorter names have neighbours that mean something else. */
const SHORTEST = 8
/** From this length two letters may be wrong, below it one. */
const LONG = 10

/**
 * @param env the environment
 * @param known names of all settings
 * @returns a sentence for each name that is no setting's and differs from one by a letter or two, by case or by the lines between words
 */
export function misspeltSettings(env: NodeJS.ProcessEnv, known: ReadonlySet<string>): string[] {
  const settings = [...known].filter((name) => name.length >= SHORTEST)
  return Object.keys(env).flatMap((name) => {
    // OpenTelemetry has many names that are alike, and most are not for us.
    if (known.has(name) || name.startsWith('OTEL_')) return []
    const meant = settings.find((setting) => isNearly(plain(name), plain(setting)))
    return meant === undefined ? [] : [`${name} is no setting: ${meant} may be meant`]
  })
}

const plain = (name: string): string => name.toUpperCase().replace(/[^A-Z0-9]/g, '')

function isNearly(name: string, setting: string): boolean {
  const most = setting.length >= LONG ? 2 : 1
  return Math.abs(name.length - setting.length) <= most && distance(name, setting) <= most
}

/** Letters to be put in, left out or written otherwise, two changed round counting as one (optimal string alignment). */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, n) => n)]
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const other = a[i - 1] === b[j - 1] ? 0 : 1
      const isTurned = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row.push(
        Math.min(
          rows[i - 1]![j]! + 1,
          row[j - 1]! + 1,
          rows[i - 1]![j - 1]! + other,
          isTurned ? rows[i - 2]![j - 2]! + 1 : Infinity,
        ),
      )
    }
    rows.push(row)
  }
  return rows[a.length]![b.length]!
}
