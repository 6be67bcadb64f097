/**
 * `make receiver`: an HTTPS receiver for the README's curl story. Prints each event as it arrives, and whether its signature
 * verifies with the public library once it was given the webhook's secret (WEBHOOK_SECRET).
 */
import { Webhook } from 'standardwebhooks'
import { processClock } from '../src/clock.ts'
import { ConfigError, loadEnvFile, readConfig } from '../src/config.ts'
import { makeSureOfDevTls } from './dev-tls.ts'
import { startHttpsReceiver, type ReceivedRequest } from './https-receiver.ts'

function signatureNote(request: ReceivedRequest, secret: string | undefined): string {
  if (!secret) return 'not checked (set WEBHOOK_SECRET to the secret that subscribe answered)'
  try {
    new Webhook(secret).verify(request.body, request.headers as Record<string, string>)
    return 'verified'
  } catch (error) {
    return `REFUSED: ${(error as Error).message}`
  }
}

async function main(): Promise<void> {
  loadEnvFile()
  const config = readConfig()
  const tls = await makeSureOfDevTls(config.dataDir, processClock.nowMs())
  const receiver = await startHttpsReceiver(
    tls,
    (request) => {
      const { headers } = request
      console.log(`\n${processClock.now().toISOString()} POST ${request.path}`)
      for (const name of ['webhook-id', 'webhook-timestamp', 'webhook-signature', 'user-agent'])
        console.log(`${name}: ${headers[name]}`)
      console.log(`signature: ${signatureNote(request, process.env.WEBHOOK_SECRET)}`)
      try {
        console.log(JSON.stringify(JSON.parse(request.body.toString('utf8')), null, 2))
      } catch {
        console.log(request.body.toString('utf8'))
      }
      return { status: 204 }
    },
    config.receiverPort,
  )
  console.log(`receiver: listening on ${receiver.url}/ (certificate of ${config.dataDir}/dev-tls); Ctrl-C ends it`)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      void receiver.close().then(() => process.exit(0))
    })
  }
}

main().catch((error: NodeJS.ErrnoException & { port?: number }) => {
  const taken =
    error.code === 'EADDRINUSE' ? `port ${error.port} is taken: set RECEIVER_PORT to another one` : undefined
  process.stderr.write(
    `receiver: ${taken ?? (error instanceof ConfigError ? error.message : (error.stack ?? error.message))}\n`,
  )
  process.exit(1)
})
