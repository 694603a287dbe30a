export * from "../lib/words";
