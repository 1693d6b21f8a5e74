/** Which tabs there are, and which sections each of them holds. No DOM. */

/**
 * A section as Python declares it. Sections with the place "segment" exclude each other; those that
 * are "beside" stand on the right, the others below each other, those that name a segment as their
 * place only with it; a "sheet" is in no tab.
 * @typedef {{
 *   name: string, title: string, tab: string, place: string, hint: string, isWide: boolean,
 *   isAlwaysShown: boolean, make: import("../shared/host.js").MakeView,
 * }} Section
 * @typedef {{
 *   name: string, label: string, hasDetails: boolean, sections: Section[], absent: string[],
 * }} Tab
 */

export const FIRST_TAB = "layers";

/** @type {[string, string][]} */
const TABS = [
  [FIRST_TAB, "Layers"],
  ["options", "Options"],
  ["results", "Results"],
  ["machine", "Machine"],
];

/**
 * The four tabs, and one for each section that names another.
 * @param {Section[]} sections @param {Record<string, any> | null | undefined} views the data of
 * sections by name @param {Record<string, string>} [absent] why a section does not apply
 * @returns {Tab[]}
 */
export function tabsOf(sections, views, absent = {}) {
  const tabs = new Map(TABS.map(([name, label]) => [name, emptyTab(name, label)]));
  for (const section of sections) {
    if (section.place === "sheet") continue;
    const why = absent[section.name];
    if (!why && !section.isAlwaysShown && !views?.[section.name]) continue;
    if (why && !tabs.has(section.tab)) continue; // it would be alone in its tab
    const label = sections.find((other) => other.name === section.tab)?.title ?? section.title;
    const tab = tabs.get(section.tab) ?? emptyTab(section.tab, label);
    tabs.set(section.tab, tab);
    if (why) tab.absent.push(`${section.title}: ${why}`);
    else tab.sections.push(section);
    tab.hasDetails &&= !section.isWide;
  }
  return [...tabs.values()];
}

/** The sections that a segmented control chooses from. @param {Tab} tab */
export function segmentsOf(tab) {
  return tab.sections.filter((section) => section.place === "segment");
}

/**
 * The sections that are seen while a segment is chosen.
 * @param {Tab} tab @param {string} chosen @returns {Section[]}
 */
export function sectionsWith(tab, chosen) {
  const segments = segmentsOf(tab);
  return tab.sections.filter(({ name, place }) => {
    if (place === "segment") return name === chosen;
    return place === chosen || !segments.some((segment) => segment.name === place);
  });
}

/** @param {string} name @param {string} label @returns {Tab} */
function emptyTab(name, label) {
  return { name, label, hasDetails: name !== "machine", sections: [], absent: [] };
}
