/**
 * The code of a test or package that was removed. Its row stays, and its lab's codes are unique: it must stand under one that no request
 * can send. U+0000 is refused in every text and every cell of an import. Its id alone would not do: that is a code which others may have.
 */
export function removedCode(id: string): string {
  return `\0${id}`
}
