/**
 * A CPU profile as one HTML page that needs nothing else: a bar for each function, as wide as its share of the time, below the one
 * that called it. A click makes a bar as wide as the page; the title of each says its file and its share.
 */
interface ProfileNode {
  id: number
  callFrame: { functionName: string; url: string; lineNumber: number }
  children?: number[]
}

export interface CpuProfile {
  nodes: ProfileNode[]
  samples: number[]
  timeDeltas: number[]
}

interface Frame {
  name: string
  where: string
  selfUs: number
  totalUs: number
  children: Frame[]
}

/** Narrower ones can't be seen. */
const SMALLEST_SHARE = 0.0005

export function frameTreeOf({ nodes, samples, timeDeltas }: CpuProfile): Frame {
  const selfUs = new Map<number, number>()
  samples.forEach((id, n) => selfUs.set(id, (selfUs.get(id) ?? 0) + timeDeltas[n]!))
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const build = ({ id, callFrame, children = [] }: ProfileNode): Frame => {
    const inner = children.map((child) => build(byId.get(child)!))
    const own = selfUs.get(id) ?? 0
    return {
      name: callFrame.functionName || '(anonymous)',
      where: callFrame.url ? `${callFrame.url.replace(/^file:\/\//, '')}:${callFrame.lineNumber + 1}` : '',
      selfUs: own,
      totalUs: own + inner.reduce((total, { totalUs }) => total + totalUs, 0),
      children: inner.sort((a, b) => b.totalUs - a.totalUs),
    }
  }
  const root = build(nodes[0]!)
  // What it did not do is no part of what it cost.
  root.children = root.children.filter(({ name }) => name !== '(idle)')
  root.totalUs = root.children.reduce((total, { totalUs }) => total + totalUs, root.selfUs)
  return root
}

/** The functions that took the most time themselves, in per cent. */
export function heaviest(root: Frame, count: number): { name: string; where: string; share: number }[] {
  const byFunction = new Map<string, { name: string; where: string; selfUs: number }>()
  const visit = ({ name, where, selfUs, children }: Frame) => {
    const key = `${name} ${where}`
    byFunction.set(key, { name, where, selfUs: selfUs + (byFunction.get(key)?.selfUs ?? 0) })
    children.forEach(visit)
  }
  visit(root)
  return [...byFunction.values()]
    .sort((a, b) => b.selfUs - a.selfUs)
    .slice(0, count)
    .map(({ name, where, selfUs }) => ({ name, where, share: (100 * selfUs) / root.totalUs }))
}

export function flameGraphPage(title: string, root: Frame): string {
  const bars: string[] = []
  let depths = 0
  const draw = (frame: Frame, left: number, depth: number) => {
    const share = frame.totalUs / root.totalUs
    if (share < SMALLEST_SHARE) return
    depths = Math.max(depths, depth)
    const hint = `${frame.name} ${frame.where} ${(share * 100).toFixed(1)} %`
    const isOurs = /\/(src|daemon|db)\//.test(frame.where) && !frame.where.includes('node_modules')
    const hue = isOurs ? 130 : frame.where.includes('node_modules') ? 30 : 210
    bars.push(
      `<i style="left:${(left * 100).toFixed(3)}%;width:${(share * 100).toFixed(3)}%;top:${depth * 18}px;background:hsl(${hue} 60% 75%)" title="${escaped(hint)}" data-x="${left}" data-w="${share}">${escaped(frame.name)}</i>`,
    )
    for (const child of frame.children) {
      draw(child, left, depth + 1)
      left += child.totalUs / root.totalUs
    }
  }
  draw(root, 0, 0)
  return `<!doctype html><meta charset="utf-8"><title>${escaped(title)}</title>
<style>body{font:12px sans-serif;margin:8px}div{position:relative;overflow:hidden;height:${(depths + 1) * 18}px}
i{position:absolute;height:17px;line-height:17px;overflow:hidden;white-space:nowrap;font-style:normal;box-sizing:border-box;padding:0 2px;border-right:1px solid #fff;cursor:pointer}</style>
<p>${escaped(title)}. Green: this service. Orange: its packages. Blue: Node. Click to enlarge, click the topmost bar to see all.</p><div>${bars.join('')}</div>
<script>document.querySelector('div').onclick=({target:t})=>{if(!t.dataset.w)return;const x=+t.dataset.x,w=+t.dataset.w
for(const b of document.querySelectorAll('i')){b.style.left=(b.dataset.x-x)/w*100+'%';b.style.width=b.dataset.w/w*100+'%'}}</script>`
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`)
}
