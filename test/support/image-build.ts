/**
 * What a Dockerfile makes, without a container engine: each stage is a folder in which the steps that this project uses are
 * carried out. The base image is an empty folder with Node in it.
 */
import { execFileSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, matchesGlob, relative } from 'node:path'
import { DockerfileParser, type Copy, type From, type Instruction } from 'dockerfile-ast'

export interface BuiltImage {
  /** The last stage's `/`. */
  root: string
  workDir: string
  env: Record<string, string>
  user: string | undefined
  command: string[]
  healthCheck: string[]
}

interface Stage {
  root: string
  workDir: string
}

/**
 * @param context the folder that a build is given
 * @param folder empty, for the stages
 * @throws for an instruction that it does not know, or a step that fails
 */
export function buildImage(dockerfile: string, context: string, folder: string): BuiltImage {
  const stages = new Map<string, Stage>()
  const isVisible = visibilityOf(`${dockerfile}.dockerignore`, context)
  const image: BuiltImage = { root: '', workDir: '/', env: {}, user: undefined, command: [], healthCheck: [] }
  for (const instruction of DockerfileParser.parse(readFileSync(dockerfile, 'utf8')).getInstructions()) {
    const words = instruction.getArguments().map((argument) => argument.getValue())
    const inImage = (path: string) => join(image.root, isAbsolute(path) ? path : join(image.workDir, path))
    switch (instruction.getKeyword()) {
      case 'FROM': {
        const name = (instruction as From).getBuildStage() ?? 'image'
        Object.assign(image, { root: join(folder, name), workDir: '/' })
        stages.set(name, image)
        putNode(image.root)
        break
      }
      case 'WORKDIR':
        image.workDir = words[0]!
        stages.set(basename(image.root), { ...image })
        mkdirSync(inImage('.'), { recursive: true })
        break
      case 'COPY': {
        const from = (instruction as Copy).getFromFlag()?.getValue() ?? undefined
        const target = words.at(-1)!
        for (const source of words.slice(0, -1)) {
          const path = from ? join(stages.get(from)!.root, source) : join(context, source)
          copy(
            path,
            inImage(target),
            target.endsWith('/') || words.length > 2,
            (file) => Boolean(from) || isVisible(file),
          )
        }
        break
      }
      case 'RUN':
        // A folder with an owner: whose it is, is the caller's to decide.
        if (words[0] === 'install') mkdirSync(inImage(words.at(-1)!), { recursive: true })
        else runStep(instruction, inImage('.'))
        break
      case 'ENV':
        for (const { name, value } of pairsOf(instruction)) image.env[name] = value
        break
      case 'USER':
        image.user = words[0]!
        break
      case 'CMD':
        image.command = stringsOf(instruction)
        break
      case 'HEALTHCHECK':
        image.healthCheck = stringsOf(instruction)
        break
      case 'ARG':
      case 'EXPOSE':
      case 'STOPSIGNAL':
      case 'VOLUME':
        break
      default:
        throw new Error(`${instruction.getKeyword()} is not known here`)
    }
  }
  return image
}

function putNode(root: string): void {
  mkdirSync(join(root, 'usr', 'local', 'bin'), { recursive: true })
  copyFileSync(process.execPath, join(root, 'usr', 'local', 'bin', 'node'))
}

/** A folder's content goes into the target; a file becomes it, or goes into it. */
function copy(source: string, target: string, intoFolder: boolean, isVisible: (path: string) => boolean): void {
  const isFolder = statSync(source).isDirectory()
  const to = isFolder || !intoFolder ? target : join(target, basename(source))
  if (!isFolder && !isVisible(source)) throw new Error(`${source} is hidden from the build`)
  mkdirSync(dirname(to), { recursive: true })
  cpSync(source, to, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => statSync(path).isDirectory() || isVisible(path),
  })
}

function runStep(instruction: Instruction, cwd: string): void {
  const env = { ...process.env, npm_config_prefer_offline: 'true', npm_config_loglevel: 'error' }
  execFileSync('sh', ['-c', instruction.getArgumentsContent()!], { cwd, env, stdio: ['ignore', 'ignore', 'inherit'] })
}

function pairsOf(instruction: Instruction): { name: string; value: string }[] {
  return instruction.getArguments().map((argument) => {
    const [name, ...value] = argument.getValue().split('=')
    return { name: name!, value: value.join('=') }
  })
}

/** Of the form in JSON alone: a shell in between would not hand signals on. */
function stringsOf(instruction: Instruction): string[] {
  const [json] = /\[[^]*\]$/.exec(instruction.getRawArgumentsContent() ?? '') ?? []
  if (json === undefined) throw new Error(`${instruction.getKeyword()} is not in JSON`)
  return JSON.parse(json)
}

/** The last pattern that fits a path, or a folder above it, decides. */
function visibilityOf(ignoreFile: string, context: string): (path: string) => boolean {
  const patterns = readFileSync(ignoreFile, 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  return (path) => {
    const parts = relative(context, path).split('/')
    const prefixes = parts.map((_, count) => parts.slice(0, count + 1).join('/'))
    const decisive = patterns.findLast((pattern) =>
      prefixes.some((each) => matchesGlob(each, pattern.replace(/^!/, ''))),
    )
    return decisive === undefined || decisive.startsWith('!')
  }
}
