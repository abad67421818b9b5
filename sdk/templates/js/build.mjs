// Builds a component from src/plugin.js: `node build.mjs WORLD FILE`. Run by `tribunal plugin build`.
import { rm, writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [, , worldName, file] = process.argv;
const interfaces = { 'conflict-rule': 'rule', 'isolation-validator': 'validator', 'log-adaptor': 'adaptor' };
const exported = interfaces[worldName];

// Faults are strings. An Error thrown by an export would end the instance without its message, so each export throws the
// message instead.
const entry = 'src/.entry.js';
await writeFile(
  entry,
  `import * as plugin from './plugin.js';

const textOf = (error) => (error instanceof Error ? \`\${error.name}: \${error.message}\` : String(error));

const faulting = (methods) =>
  Object.fromEntries(
    Object.keys(methods).map((name) => [
      name,
      (...parameters) => {
        try {
          return methods[name](...parameters);
        } catch (error) {
          throw textOf(error);
        }
      },
    ]),
  );

export const lifecycle = faulting(plugin.lifecycle);
export const ${exported} = faulting(plugin.${exported});
`,
);
try {
  const { component } = await componentize({
    sourcePath: entry,
    witPath: 'wit',
    worldName,
    // Disable everything that would become an import. As a result, clocks stand still, "random" numbers are the same in each
    // run, and output is discarded.
    disableFeatures: ['clocks', 'fetch-event', 'http', 'random', 'stdio'],
  });
  await writeFile(file, component);
} finally {
  await rm(entry, { force: true });
}
