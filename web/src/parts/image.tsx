// An image that came in a message. Only its own bytes are drawn; an address is not loaded.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Image } from "../api/types";
import { bytes } from "../lib/words";

export function Picture({ image }: { image: Image }): JSX.Element {
  const ref = useRef<HTMLCanvasElement>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    if (!image.data) return;
    let gone = false;
    void draw(image, ref.current!, () => gone).catch(() => setFailed(true));
    return () => {
      gone = true;
    };
  }, [image.data]);
  if (!image.data) return <p class="soft">image at {image.url} (not loaded)</p>;
  const size = bytes(Math.floor((image.data.length * 3) / 4));
  return failed ? (
    <p class="soft">
      image, {image.media_type}, {size}: not one that can be shown
    </p>
  ) : (
    <canvas ref={ref} class="picture" role="img" aria-label={`image, ${image.media_type}, ${size}`} />
  );
}

async function draw(image: Image, canvas: HTMLCanvasElement, gone: () => boolean): Promise<void> {
  const raw = atob(image.data!);
  const data = Uint8Array.from(raw, (c) => c.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([data], { type: image.media_type ?? "" }));
  if (gone()) return;
  const scale = Math.min(1, 1024 / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.round(bitmap.width * scale);
  canvas.height = Math.round(bitmap.height * scale);
  canvas.getContext("2d")!.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
}
