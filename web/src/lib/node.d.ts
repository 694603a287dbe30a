// What the tests use of Node.js.
declare module "node:test" {
  export function test(name: string, of: () => void): void;
}
declare module "node:assert/strict" {
  const assert: {
    equal(got: unknown, want: unknown, message?: string): void;
    deepEqual(got: unknown, want: unknown): void;
  };
  export default assert;
}
