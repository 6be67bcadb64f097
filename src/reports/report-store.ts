/**
 * Where report files are. Each is written once, under an id of its own, and never changed, so that a store that keeps
 * objects elsewhere can take this one's place.
 *
 * A file and its row never part. The file comes first: when its id is known to a row it is whole and on the disk. A crash
 * before that row is committed leaves a file that no row speaks of; `sweep` removes it.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { access, mkdir, open, readdir, rename, rm, stat, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { processClock } from '../clock.ts'
import { badRequest, DomainError, unavailable } from '../errors.ts'
import { isIdShaped, newId } from '../ids.ts'
import { makeFolder } from '../make-folder.ts'

export interface StoredFile {
  id: string
  bytes: number
  sha256: Buffer
}

export interface ReportStore {
  /** Makes sure that files can be written. @throws what the system says of the folder */
  prepare(): Promise<void>
  /**
   * Takes a PDF in; when this returns it is on the disk.
   * @throws 413 for more bytes than the store takes, 400 for what is no PDF or ends early, 503 where the disk is at fault
   */
  receive(source: Readable, nowMs: number): Promise<StoredFile>
  /** The file for reading, to be closed by the caller; undefined: there is none. @throws 503 where the disk is at fault */
  open(fileId: string): Promise<FileHandle | undefined>
  /** Nothing happens where there is no such file. @throws 503 where the disk is at fault */
  remove(fileId: string): Promise<void>
  /** For a row that is about to be committed. @throws 503 where a sweep has taken the file, or the disk is at fault */
  requireKept(fileId: string): Promise<void>
  /**
   * Removes files that no row speaks of. Younger ones than an hour, by their id or by the disk, stay: their row may be about to be
   * committed. And where the rows know none of the whole files, all of them stay: it may be another database.
   */
  sweep(nowMs: number, listKnown: (fileIds: string[]) => Promise<KnownFiles>): Promise<Swept>
}

/** Of some ids of files those that a row speaks of. */
export interface KnownFiles {
  uploaded: Set<string>
  /** Of the demo data, whose ids are the same in every database: they say nothing of whose files the others are. */
  demo: Set<string>
}

export interface Swept {
  removed: number
  /** Whole files of which the rows know not one. */
  foreign: number
}

/** Longer than any request takes. */
const ORPHAN_AGE_MS = 3600_000
const SWEEP_BATCH = 500
/** Somebody has to see to the disk. */
const DISK_RETRY_SECONDS = 30
const PDF_MARK = Buffer.from('%PDF-', 'latin1')
const WHOLE = '.pdf'
const UNFINISHED = '.pdf.part'

export function reportFolder(dataDir: string): string {
  return join(dataDir, 'reports')
}

/** @param maxBytes of one file */
export function openReportStore(dataDir: string, maxBytes: number): ReportStore {
  const folder = reportFolder(dataDir)
  const pathOf = (fileId: string, suffix: string) => join(folder, `${fileId}${suffix}`)

  async function receive(source: Readable, nowMs: number): Promise<StoredFile> {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const id = newId(nowMs)
    const unfinished = pathOf(id, UNFINISHED)
    const file = await open(unfinished, 'wx', 0o600)
    try {
      const written = await writePdf(file, source, maxBytes)
      // First the bytes, then the name: a whole name never stands for half a file.
      await file.sync()
      await file.close()
      await rename(unfinished, pathOf(id, WHOLE))
      await syncFolder(folder)
      return { id, ...written }
    } catch (error) {
      await file.close().catch(() => {})
      await rm(unfinished, { force: true }).catch(() => {})
      throw error
    }
  }

  return {
    async prepare() {
      makeFolder(folder, 0o700)
      await access(folder, constants.W_OK | constants.X_OK)
    },

    receive: async (source, nowMs) =>
      receive(source, nowMs).catch((error) => {
        source.resume()
        throw faultOf(error, 'stored')
      }),

    async open(fileId) {
      if (!isIdShaped(fileId)) return undefined
      try {
        return await openReadable(pathOf(fileId, WHOLE))
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
        throw faultOf(error, 'read')
      }
    },

    async remove(fileId) {
      await rm(pathOf(fileId, WHOLE), { force: true }).catch((error) => {
        throw faultOf(error, 'removed')
      })
    },

    async requireKept(fileId) {
      await access(pathOf(fileId, WHOLE)).catch((error) => {
        if (error.code === 'ENOENT')
          throw unavailable('the file was removed before it could be recorded: send it again')
        throw faultOf(error, 'stored')
      })
    },

    async sweep(nowMs, listKnown) {
      const old = (await listFiles(folder)).filter(({ fileId }) => fileId < newId(nowMs - ORPHAN_AGE_MS))
      const whole = old.filter(({ suffix }) => suffix === WHOLE).map(({ fileId }) => fileId)
      const unknown: string[] = []
      let isForeign = true
      for (let start = 0; start < whole.length; start += SWEEP_BATCH) {
        const batch = whole.slice(start, start + SWEEP_BATCH)
        const { uploaded, demo } = await listKnown(batch)
        if (uploaded.size > 0) isForeign = false
        unknown.push(...batch.filter((fileId) => !uploaded.has(fileId) && !demo.has(fileId)))
      }
      const orphans = isForeign ? [] : unknown.map((fileId) => pathOf(fileId, WHOLE))
      const unfinished = old
        .filter(({ suffix }) => suffix === UNFINISHED)
        .map(({ fileId }) => pathOf(fileId, UNFINISHED))
      let removed = 0
      for (const path of [...orphans, ...unfinished]) {
        if (!(await isOld(path))) continue
        await rm(path, { force: true })
        removed += 1
      }
      return { removed, foreign: isForeign ? unknown.length : 0 }
    },
  }
}

/** By the disk, whose time is this machine's: where the database's clock was set forward, a file is as young as it was. */
async function isOld(path: string): Promise<boolean> {
  const written = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  return written !== undefined && processClock.nowMs() - written.mtimeMs > ORPHAN_AGE_MS
}

function faultOf(error: unknown, done: string): unknown {
  return isOfTheDisk(error) ? unavailable(`files of reports can not be ${done} now`, DISK_RETRY_SECONDS, error) : error
}

/** Full, or not to be written any more, or nobody's that may have it. */
function isOfTheDisk(error: unknown): boolean {
  return [
    'ENOSPC',
    'EDQUOT',
    'EROFS',
    'EACCES',
    'EPERM',
    'EIO',
    'EEXIST',
    'ENOTDIR',
    'EISDIR',
    'ERR_FS_EISDIR',
  ].includes((error as NodeJS.ErrnoException).code ?? '')
}

/** A disk that fails may well open what it can't read: its first byte is asked for, while there is still somebody to tell. */
async function openReadable(path: string): Promise<FileHandle> {
  const file = await open(path, 'r')
  try {
    await file.read(Buffer.alloc(1), 0, 1, 0)
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

/** Of files whose rows are gone for certain. One that can't be removed now is left to the sweep: what was asked for is done. */
export async function removeDiscarded(store: ReportStore, fileIds: string[]): Promise<void> {
  for (const fileId of fileIds) await store.remove(fileId).catch(() => {})
}

async function writePdf(file: FileHandle, source: Readable, maxBytes: number): Promise<Omit<StoredFile, 'id'>> {
  const hash = createHash('sha256')
  let head = Buffer.alloc(0)
  let bytes = 0
  try {
    // The source is not destroyed when this ends early: its connection still has to carry the answer.
    for await (const chunk of source.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > maxBytes) throw fileTooLarge(maxBytes)
      if (head.length < PDF_MARK.length) {
        head = Buffer.concat([head, chunk.subarray(0, PDF_MARK.length)])
        if (head.length >= PDF_MARK.length) requirePdf(head)
      }
      hash.update(chunk)
      for (let written = 0; written < chunk.length;) {
        written += (await file.write(chunk, written)).bytesWritten
      }
    }
  } catch (error) {
    if (source.errored) throw badRequest('the body ended early')
    throw error
  } finally {
    source.resume()
  }
  requirePdf(head)
  return { bytes, sha256: hash.digest() }
}

function requirePdf(head: Buffer): void {
  if (head.subarray(0, PDF_MARK.length).equals(PDF_MARK)) return
  throw badRequest('the body is no PDF: it must begin with %PDF-', 'not_a_pdf')
}

/** @param maxBytes what a file may have */
export function fileTooLarge(maxBytes: number): DomainError {
  return new DomainError('payload_too_large', 'payload_too_large', `the file is larger than ${maxBytes} bytes`)
}

/** Without it a power cut could forget the name although the row is committed. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Only files that this store wrote. */
async function listFiles(folder: string): Promise<{ fileId: string; suffix: string }[]> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  return names.flatMap((name) => {
    const suffix = [UNFINISHED, WHOLE].find((end) => name.endsWith(end))
    if (suffix === undefined) return []
    const fileId = name.slice(0, -suffix.length)
    return isIdShaped(fileId) ? [{ fileId, suffix }] : []
  })
}
