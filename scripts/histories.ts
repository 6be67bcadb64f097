/**
 * `make histories`: random histories of failing webhooks against what the specification says: `--rules` of them on the rules alone,
 * `--runs` on the real modules and a database.
 *
 *     node scripts/histories.ts [--rules 200000] [--steps 200] [--runs 2000] [--commands 40] [--seed 7]
 */
import { runSizedTests, seedSize } from './sized-tests.ts'

runSizedTests({
  title: 'histories',
  files: ['test/webhooks/webhook-health.test.ts', 'test/webhooks/life-cycle-model.test.ts'],
  sizes: {
    rules: { setting: 'RULES_RUNS', value: 200_000, least: 1000, most: 100_000_000 },
    steps: { setting: 'RULES_STEPS', value: 200, least: 20, most: 10_000 },
    runs: { setting: 'MODEL_RUNS', value: 2000, least: 20, most: 1_000_000 },
    commands: { setting: 'MODEL_COMMANDS', value: 40, least: 20, most: 1000 },
    seed: seedSize('MODEL_SEED'),
  },
})
