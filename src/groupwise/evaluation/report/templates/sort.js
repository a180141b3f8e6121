for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const read = (row, column) => {
    const cell = row.cells[column];
    const order = cell.dataset.order;
    return order === undefined ? cell.textContent.trim() : Number(order);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, document.documentElement.lang, { numeric: true });
  };
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const isUp = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      const rows = [...body.rows];
      rows.sort((a, b) => {
        const x = read(a, column), y = read(b, column);
        const isMixed = typeof x !== typeof y;
        return compare(x, y) * (isUp || isMixed ? 1 : -1);
      });
      body.append(...rows);
    });
  });
}
