/**
 * The README's four ways of verifying a signature, run as they stand there on a delivery that this service signed. The
 * public libraries for Python and Go come from their registries; without them that language is left out, and said so.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { formatSecret, sign } from '../src/deliveries/signature.ts'

const ROOT = join(import.meta.dirname, '..')
const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const GO_MODULE = 'github.com/standard-webhooks/standard-webhooks/libraries'
const INSTALL_TIMEOUT_MS = 60_000

let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'lis-snippets-'))
})

afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** The code block of that language in the chapter. */
function snippet(language: string): string {
  const chapter = README.split(/^## /m).find((text) => text.startsWith('Verifying a signature'))!
  return new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(chapter)![1]!
}

interface Delivery {
  secret: string
  headers: Record<string, string>
  body: string
}

/** Hard to get right: bytes beyond ASCII, escapes, spaces that a parser would drop. */
function signedDelivery(): Delivery {
  const key = randomBytes(32)
  const id = 'evt_01m7ycn7wpbj6ar05y74rmgs48'
  const body = `{"id":"${id}", "type":"booking.created","data":{"name":"Zoë \\u00e9 Ñandú – 北京","total":10.50}}`
  const timestamp = Math.floor(Date.now() / 1000)
  return {
    secret: formatSecret(key),
    headers: {
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      // As during a rotation: a second signature, by another key.
      'webhook-signature': sign([randomBytes(32), key], id, timestamp, Buffer.from(body)),
    },
    body,
  }
}

interface Outcome {
  code: number | undefined
  output: string
}

async function run(program: string, args: string[], cwd: string, env: NodeJS.ProcessEnv = {}): Promise<Outcome> {
  const child = spawn(program, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: INSTALL_TIMEOUT_MS,
  })
  let output = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  child.stderr.on('data', (chunk) => (output += chunk))
  return new Promise((resolve) => {
    child.on('error', (error) => resolve({ code: undefined, output: error.message }))
    child.on('close', (code) => resolve({ code: code ?? undefined, output }))
  })
}

/** What the program that wraps the snippet must print: the good one passes, and a changed byte does not. */
const EXPECTED = 'true delivery: accepted\nchanged delivery: refused\n'

function folderOf(language: string, delivery: Delivery): string {
  const cwd = join(folder, language)
  mkdirSync(cwd)
  writeFileSync(join(cwd, 'delivery.json'), JSON.stringify(delivery))
  return cwd
}

test('JavaScript', async () => {
  const cwd = folderOf('js', signedDelivery())
  for (const name of ['standardwebhooks', '@stablelib/base64', 'fast-sha256']) {
    cpSync(join(ROOT, 'node_modules', name), join(cwd, 'node_modules', name), { recursive: true })
  }
  writeFileSync(join(cwd, 'receive.mjs'), snippet('js'))
  writeFileSync(
    join(cwd, 'main.mjs'),
    `import { readFileSync } from 'node:fs'
    import { receive } from './receive.mjs'
    const { secret, headers, body } = JSON.parse(readFileSync('delivery.json', 'utf8'))
    for (const [name, text] of [['true', body], ['changed', body.replace('Zoë', 'Zoe')]]) {
      let verdict = 'refused'
      try {
        if (receive(secret, headers, Buffer.from(text)).type === 'booking.created') verdict = 'accepted'
      } catch {}
      console.log(name + ' delivery: ' + verdict)
    }`,
  )
  expect(await run(process.execPath, ['main.mjs'], cwd)).toEqual({ code: 0, output: EXPECTED })
})

test('Python', { timeout: 150_000 }, async (context) => {
  const cwd = folderOf('python', signedDelivery())
  const pip = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    '--target',
    'libraries',
    'standardwebhooks',
  ]
  const install = await run('python3', pip, cwd, { PIP_DEFAULT_TIMEOUT: '10', PIP_RETRIES: '0' })
  if (install.code !== 0) return leaveOut(context, 'Python', install)
  writeFileSync(join(cwd, 'receive.py'), snippet('python'))
  writeFileSync(
    join(cwd, 'main.py'),
    `import json
from receive import receive
delivery = json.load(open('delivery.json', encoding='utf-8'))
body = delivery['body']
for name, text in (('true', body), ('changed', body.replace('Zoë', 'Zoe'))):
    verdict = 'refused'
    try:
        if receive(delivery['secret'], delivery['headers'], text.encode())['type'] == 'booking.created':
            verdict = 'accepted'
    except Exception:
        pass
    print(name, 'delivery:', verdict)
`,
  )
  const outcome = await run('python3', ['main.py'], cwd, { PYTHONPATH: join(cwd, 'libraries'), PYTHONUTF8: '1' })
  expect(outcome).toEqual({ code: 0, output: EXPECTED })
})

test('Go', { timeout: 150_000 }, async (context) => {
  const cwd = folderOf('go', signedDelivery())
  writeFileSync(join(cwd, 'go.mod'), 'module snippet\n\ngo 1.20\n')
  const install = await run('go', ['get', GO_MODULE], cwd, { GOFLAGS: '-mod=mod' })
  if (install.code !== 0) return leaveOut(context, 'Go', install)
  mkdirSync(join(cwd, 'receiver'))
  writeFileSync(join(cwd, 'receiver', 'receiver.go'), snippet('go'))
  writeFileSync(
    join(cwd, 'main.go'),
    `package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"snippet/receiver"
)

func main() {
	var delivery struct {
		Secret, Body string
		Headers      map[string]string
	}
	text, _ := os.ReadFile("delivery.json")
	if err := json.Unmarshal(text, &delivery); err != nil {
		panic(err)
	}
	headers := http.Header{}
	for name, value := range delivery.Headers {
		headers.Set(name, value)
	}
	report := func(name, body string) {
		verdict := "refused"
		if receiver.Receive(delivery.Secret, headers, []byte(body)) == nil {
			verdict = "accepted"
		}
		fmt.Println(name, "delivery:", verdict)
	}
	report("true", delivery.Body)
	report("changed", strings.Replace(delivery.Body, "Zoë", "Zoe", 1))
}
`,
  )
  expect(await run('go', ['run', '.'], cwd, { GOFLAGS: '-mod=mod' })).toEqual({ code: 0, output: EXPECTED })
})

test('a shell', { timeout: 150_000 }, async (context) => {
  const version = await run('openssl', ['version'], folder)
  if (version.code !== 0) return leaveOut(context, 'the shell', version)
  const { secret, headers, body } = signedDelivery()
  const cwd = folderOf('sh', { secret, headers, body })
  writeFileSync(join(cwd, 'true'), body)
  writeFileSync(join(cwd, 'changed'), body.replace('Zoë', 'Zoe'))
  writeFileSync(join(cwd, 'receive.sh'), snippet('sh'))
  writeFileSync(
    join(cwd, 'main.sh'),
    `. ./receive.sh
for name in true changed; do
  verdict=refused
  signed=$(signature "$SECRET" "$ID" "$TIMESTAMP" < "$name")
  for one in $SIGNATURES; do [ "$one" = "v1,$signed" ] && verdict=accepted; done
  echo "$name delivery: $verdict"
done
`,
  )
  const given = {
    SECRET: secret,
    ID: headers['webhook-id'],
    TIMESTAMP: headers['webhook-timestamp'],
    SIGNATURES: headers['webhook-signature'],
  }
  expect(await run('sh', ['main.sh'], cwd, given)).toEqual({ code: 0, output: EXPECTED })
})

function leaveOut(context: { skip(note?: string): never }, language: string, { output }: Outcome): never {
  const reason = output.trim().split('\n').at(-1)
  console.log(`signature snippets: ${language} left out, its interpreter or library can't be had here (${reason})`)
  return context.skip(reason)
}
