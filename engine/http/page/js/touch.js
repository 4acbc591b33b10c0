// Plots on a touch screen: the legend shows the figures under the finger.

/** Moves the cursor of a plot with the finger; the page scrolls as ever. */
export function followTouch(plot) {
  const move = ({ touches }) => {
    const box = plot.over.getBoundingClientRect();
    plot.setCursor({ left: Math.min(Math.max(0, touches[0].clientX - box.left), box.width - 1), top: 0 });
  };
  for (const event of ["touchstart", "touchmove"]) plot.over.addEventListener(event, move, { passive: true });
}
