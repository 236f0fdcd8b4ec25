// Reads Markdown, and parses each block of mermaid in it. It prints how many there are.
import mermaid from 'mermaid';
import { readFileSync } from 'node:fs';

const blocks = [...readFileSync(process.argv[2], 'utf8').matchAll(/```mermaid\n([\s\S]*?)```/g)];
for (const [, block] of blocks) await mermaid.parse(block);
console.log(blocks.length);
