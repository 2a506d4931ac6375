// node run.mjs MODULE CONTENTS LEVEL=FILE...: decodes each file and compares the result with the contents; compresses
// the contents at that level and compares the result with the file. Does both with whole slices and with streams.
import { readFileSync } from "node:fs";

const [module, contentsPath, ...files] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(module), {});
const pz = instance.exports;

function call(work, bytes) {
  // The memory may grow, and then it has a new buffer.
  const at = pz.input(bytes.length);
  new Uint8Array(pz.memory.buffer, at, bytes.length).set(bytes);
  const len = work();
  if (len < 0) throw new Error("the module refused the input");
  return Buffer.from(pz.memory.buffer, pz.output(), len);
}

const contents = readFileSync(contentsPath);
for (const argument of files) {
  const [level, path] = argument.split("=", 2);
  const file = readFileSync(path);
  for (const decode of [pz.decompress, pz.read_stream])
    if (!call(decode, file).equals(contents)) throw new Error(`${path}: decodes to other contents`);
  for (const encode of [pz.compress, pz.write_stream])
    if (!call(() => encode(Number(level)), contents).equals(file))
      throw new Error(`${path}: the level gives other bytes`);
  console.log(`level ${level}: ${contents.length} bytes in ${file.length}`);
}
